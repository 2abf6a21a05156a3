"""The only room that imports ONNX Runtime."""

import os

# Must be set before the first import of ONNX Runtime.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
