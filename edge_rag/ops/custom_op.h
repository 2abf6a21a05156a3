// What every op's description has in common.
#pragma once

#include "ort_abi.h"
#include "ort_tensor.h"

namespace edge_rag {

// Describes an op of version 1 with one float output. Op has
//   kName, kInputs                        its name and how many inputs it has
//   static int input_type(size_t)         what they are
//   static bool is_optional(size_t)       whether they may be left out
//   Op(const OrtApi*, const OrtKernelInfo*)  reads the attributes; throws InvalidInput if they make no sense
//   void compute(OrtKernelContext*) const
//   const OrtApi* api() const
template <class Op>
OrtCustomOp describe_op() {
  OrtCustomOp op{};
  op.version = kOrtApiVersion;
  op.GetName = [](const OrtCustomOp*) -> const char* { return Op::kName; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return "CPUExecutionProvider"; };
  op.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return Op::kInputs; };
  op.GetInputType = [](const OrtCustomOp*, size_t index) -> int { return Op::input_type(index); };
  op.GetInputCharacteristic = [](const OrtCustomOp*, size_t index) -> int {
    return Op::is_optional(index) ? kOrtOptional : kOrtRequired;
  };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) -> int { return 0; };
  op.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  op.GetOutputType = [](const OrtCustomOp*, size_t) -> int { return kOrtFloat; };
  op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) -> int { return kOrtRequired; };
  op.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi* api, const OrtKernelInfo* info, void** out) {
    return guarded(api, Op::kName, [&] { *out = new Op(api, info); });
  };
  op.KernelComputeV2 = [](void* self, OrtKernelContext* context) {
    const Op& kernel = *static_cast<Op*>(self);
    return guarded(kernel.api(), Op::kName, [&] { kernel.compute(context); });
  };
  op.KernelDestroy = [](void* self) { delete static_cast<Op*>(self); };
  op.GetStartVersion = [](const OrtCustomOp*) -> int { return 1; };
  op.GetEndVersion = [](const OrtCustomOp*) -> int { return 1; };
  return op;
}

}  // namespace edge_rag
