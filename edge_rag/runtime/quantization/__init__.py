"""Quantization of decoders: fitted blocks, error compensation, and the choice of bits per matrix."""
