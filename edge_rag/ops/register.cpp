// What ONNX Runtime calls when it loads the library.
#include <string>

#include "kernels.h"
#include "ort_abi.h"
#include "ort_tensor.h"
#include "paged_attention.h"
#include "quantized_matmul.h"
#include "quantized_rows.h"
#include "sequence_attention.h"
#include "sequence_sum.h"
#include "skip_norm.h"

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  using edge_rag::check;
  const OrtApi* api = base->GetApi(edge_rag::kOrtApiVersion);
  // Too old a runtime: without its API not even an error can be made. The session then reports that the op is unknown.
  if (api == nullptr) return nullptr;
  return edge_rag::guarded(api, "ai.edge_rag", [&] {
    OrtCustomOpDomain* domain = nullptr;
    check(api->CreateCustomOpDomain("ai.edge_rag", &domain));  // owned by the options from AddCustomOpDomain on
    check(api->CustomOpDomain_Add(domain, &edge_rag::paged_attention_op()));
    check(api->CustomOpDomain_Add(domain, &edge_rag::quantized_matmul_op()));
    check(api->CustomOpDomain_Add(domain, &edge_rag::quantized_rows_op()));
    check(api->CustomOpDomain_Add(domain, &edge_rag::sequence_attention_op()));
    check(api->CustomOpDomain_Add(domain, &edge_rag::sequence_sum_op()));
    check(api->CustomOpDomain_Add(domain, &edge_rag::skip_norm_op()));
    check(api->AddCustomOpDomain(options, domain));
  });
}

// The names of the kernel builds this machine can run, separated by spaces, the one that is used last.
extern "C" __attribute__((visibility("default"))) const char* edge_rag_ops_builds() {
  static const std::string names = [] {
    std::string joined;
    for (const edge_rag::KernelBuild* build : edge_rag::kernel_builds()) {
      joined += (joined.empty() ? "" : " ") + std::string(build->name);
    }
    return joined;
  }();
  return names.c_str();
}
