"""The only room that imports ONNX Runtime."""

import os

# Read when ONNX Runtime is imported, whichever file of this room does so first.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
