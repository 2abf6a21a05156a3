// What the op needs of ONNX Runtime, with its error statuses turned into exceptions inside this library. They are turned
// back at the library's edge: no exception crosses into ONNX Runtime.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort_abi.h"

namespace edge_rag {

// An input that the op refuses.
struct InvalidInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A status that ONNX Runtime gave us and that goes back to it as it is.
struct OrtFailure {
  OrtStatus* status;
};

inline void check(OrtStatus* status) {
  if (status != nullptr) throw OrtFailure{status};
}

inline void append(std::string& text, const char* part) { text += part; }
inline void append(std::string& text, int64_t part) { text += std::to_string(part); }
inline void append(std::string& text, const std::vector<int64_t>& dims) {
  text += "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  text += "]";
}

// Refuses the inputs unless the condition holds; the message is made only then.
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::string message = "PagedAttention: ";
  (append(message, parts), ...);
  throw InvalidInput(message);
}

// Runs body and returns what became of it as a status.
template <class Body>
OrtStatus* guarded(const OrtApi* api, Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const OrtFailure& failure) {
    return failure.status;
  } catch (const InvalidInput& error) {
    return api->CreateStatus(kOrtInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return api->CreateStatus(kOrtFail, error.what());
  }
}

template <class Element>
struct Tensor {
  Element* data = nullptr;
  std::vector<int64_t> dims;
  bool present = false;
};

template <class Element>
Tensor<Element> input(const OrtApi* api, const OrtKernelContext* context, size_t index) {
  const OrtValue* value = nullptr;
  check(api->KernelContext_GetInput(context, index, &value));
  Tensor<Element> tensor;
  if (value == nullptr) return tensor;

  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api->GetTensorTypeAndShape(value, &info));
  struct Release {
    const OrtApi* api;
    OrtTensorTypeAndShapeInfo* info;
    ~Release() { api->ReleaseTensorTypeAndShapeInfo(info); }
  } release{api, info};
  size_t rank = 0;
  check(api->GetDimensionsCount(info, &rank));
  tensor.dims.resize(rank);
  check(api->GetDimensions(info, tensor.dims.data(), rank));

  void* data = nullptr;
  check(api->GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  tensor.data = static_cast<Element*>(data);
  tensor.present = true;
  return tensor;
}

}  // namespace edge_rag
