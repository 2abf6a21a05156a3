"""Commands for operators of a box: the support bundle, and trying a release."""
