// The part of ONNX Runtime's C ABI that the custom ops use. The ABI is append-only: a function's position in the table
// never changes, so these declarations fit every ONNX Runtime from 1.17 on.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtCustomOpDomain;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;
struct OrtCustomOp;

namespace edge_rag {

constexpr uint32_t kOrtApiVersion = 17;

enum OrtErrorCode : int { kOrtFail = 1, kOrtInvalidArgument = 2 };
// As the type of an input, kOrtAnyType leaves it to the model.
enum OrtElementType : int {
  kOrtAnyType = 0,
  kOrtFloat = 1,
  kOrtUint8 = 2,
  kOrtInt8 = 3,
  kOrtInt32 = 6,
  kOrtInt64 = 7,
  kOrtFloat16 = 10
};
enum OrtCharacteristic : int { kOrtRequired = 0, kOrtOptional = 1 };

}  // namespace edge_rag

using OrtUnused = void (*)();

struct OrtApi {
  OrtStatus* (*CreateStatus)(int code, const char* message);
  OrtUnused unused_1_25[25];
  OrtStatus* (*CreateCustomOpDomain)(const char* name, OrtCustomOpDomain** out);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain, const OrtCustomOp* op);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options, OrtCustomOpDomain* domain);
  OrtUnused unused_29_50[22];
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out);
  OrtUnused unused_52_59[8];
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo* info, int* out);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, int64_t* dims, size_t count);
  OrtUnused unused_63_64[2];
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** out);
  OrtUnused unused_66_84[19];
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo* info, const char* name, float* out);
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo* info, const char* name, int64_t* out);
  OrtUnused unused_87_89[3];
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context, size_t index, const OrtValue** out);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, size_t index, const int64_t* dims, size_t rank,
                                        OrtValue** out);
  OrtUnused unused_92[1];
  void (*ReleaseStatus)(OrtStatus* status);
  OrtUnused unused_94_98[5];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  OrtUnused unused_100_273[174];
  OrtStatus* (*KernelContext_ParallelFor)(const OrtKernelContext* context, void (*body)(void*, size_t), size_t total,
                                          size_t batches, void* user);
};

#define EDGE_RAG_AT(member, position) \
  static_assert(offsetof(OrtApi, member) == (position) * sizeof(void*), #member " is misplaced")
EDGE_RAG_AT(CreateCustomOpDomain, 26);
EDGE_RAG_AT(AddCustomOpDomain, 28);
EDGE_RAG_AT(GetTensorMutableData, 51);
EDGE_RAG_AT(GetTensorElementType, 60);
EDGE_RAG_AT(GetDimensionsCount, 61);
EDGE_RAG_AT(GetTensorTypeAndShape, 65);
EDGE_RAG_AT(KernelInfoGetAttribute_float, 85);
EDGE_RAG_AT(KernelContext_GetInput, 90);
EDGE_RAG_AT(ReleaseStatus, 93);
EDGE_RAG_AT(ReleaseTensorTypeAndShapeInfo, 99);
EDGE_RAG_AT(KernelContext_ParallelFor, 274);
#undef EDGE_RAG_AT

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

struct OrtCustomOp {
  uint32_t version;
  OrtUnused create_kernel;
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  OrtUnused kernel_compute;
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t index);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t index);
  OrtUnused variadic[4];
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext* context);
  OrtUnused infer_output_shape;
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
  OrtUnused aliasing[4];
};
static_assert(sizeof(OrtCustomOp) == 26 * sizeof(void*), "OrtCustomOp has 26 slots");
