// What the op needs of ONNX Runtime, with its error statuses turned into exceptions inside this library. They are turned
// back at the library's edge: no exception crosses into ONNX Runtime.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
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
  std::string message;
  (append(message, parts), ...);
  throw InvalidInput(message);
}

// Runs body and returns what became of it as a status, whose message begins with the op's name.
template <class Body>
OrtStatus* guarded(const OrtApi* api, const char* op, Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const OrtFailure& failure) {
    return failure.status;
  } catch (const InvalidInput& error) {
    return api->CreateStatus(kOrtInvalidArgument, (std::string(op) + ": " + error.what()).c_str());
  } catch (const std::exception& error) {
    return api->CreateStatus(kOrtFail, (std::string(op) + ": " + error.what()).c_str());
  }
}

inline void require_shape(const char* name, const std::vector<int64_t>& dims, const std::vector<int64_t>& expected) {
  require(dims == expected, name, " has shape ", dims, ", expected ", expected);
}

inline OrtStatus* read_attribute(const OrtApi* api, const OrtKernelInfo* info, const char* name, int64_t* value) {
  return api->KernelInfoGetAttribute_int64(info, name, value);
}
inline OrtStatus* read_attribute(const OrtApi* api, const OrtKernelInfo* info, const char* name, float* value) {
  return api->KernelInfoGetAttribute_float(info, name, value);
}

// An attribute; Value is int64_t or float.
template <class Value>
Value attribute(const OrtApi* api, const OrtKernelInfo* info, const char* name) {
  Value value{};
  check(read_attribute(api, info, name, &value));
  return value;
}

// An attribute, or what it is where the model leaves it out.
template <class Value>
Value attribute_or(const OrtApi* api, const OrtKernelInfo* info, const char* name, Value otherwise) {
  Value value{};
  OrtStatus* const status = read_attribute(api, info, name, &value);
  if (status == nullptr) return value;
  api->ReleaseStatus(status);
  return otherwise;
}

template <class Element>
struct Tensor {
  Element* data = nullptr;
  std::vector<int64_t> dims;
  int type = kOrtAnyType;  // of its elements
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
  check(api->GetTensorElementType(info, &tensor.type));
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

// Makes the output and returns its data.
template <class Element>
Element* output(const OrtApi* api, OrtKernelContext* context, const std::vector<int64_t>& dims) {
  OrtValue* value = nullptr;
  check(api->KernelContext_GetOutput(context, 0, dims.data(), dims.size(), &value));
  void* data = nullptr;
  check(api->GetTensorMutableData(value, &data));
  return static_cast<Element*>(data);
}

// Calls body(index) for every index below total, on the threads of ONNX Runtime's pool, each taking the next index when
// it has done its last.
template <class Body>
void parallel_for(const OrtApi* api, const OrtKernelContext* context, size_t total, Body&& body) {
  if (total == 0) return;
  const auto call = [](void* user, size_t index) { (*static_cast<std::remove_reference_t<Body>*>(user))(index); };
  check(api->KernelContext_ParallelFor(context, call, total, total, &body));
}

}  // namespace edge_rag
