#include "module_parts.h"

#include "bind_backend.h"
#include "core/view_rules.h"
#include "cuda/kernels.h"

namespace needle::bindings {
namespace {

// `result` is the result of the convolution.
void check_moments(const char* op, const View& moments, const View& result) {
  const std::int64_t channels = result.ndim > 0 ? result.shape[result.ndim - 1] : 0;
  NEEDLE_CHECK(result.dtype == DType::kFloat32 || result.dtype == DType::kBFloat16,
               std::string(op) + ": the dtype must be float32 or bfloat16, got " +
                   name_of(result.dtype) + "; use the kernels without moments");
  check_dtype(op, moments, DType::kFloat32);
  const std::int64_t pixels = channels == 0 ? 0 : size_of(result) / channels;
  const std::int64_t shape[] = {(pixels + 63) / 64, 2, channels};
  NEEDLE_CHECK(moments.ndim == 3 && std::equal(shape, shape + 3, moments.shape) &&
                   (size_of(moments) == 0 || is_compact(moments)),
               std::string(op) + ": moments must be compact, (pixels / 64, 2, channels)");
}

void check_conv2d(In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue,
                  Out moments) {
  kernel_rules().conv2d(x, weight, out, geometry, epilogue);
  check_moments("conv2d_moments", moments, out);
}

void check_batch_norm(In x, In moments, In weight, In bias, Out out, Out mean, Out var, double eps,
                      const Epilogue& epilogue) {
  kernel_rules().batch_norm(x, weight, bias, out, mean, var, eps, epilogue);
  check_moments("batch_norm_of_moments", moments, x);
}

template <auto kRule, auto kKernel>
struct MomentsCall final : CallOf<decltype(kRule)> {
  explicit MomentsCall(Arguments& from)
      : CallOf<decltype(kRule)>(from, kRule, [] { return kKernel; }) {}
};

}  // namespace

void bind_cuda_moments(PyObject* module) {
  bind_kernel<MomentsCall<&check_conv2d, &cuda::conv2d_moments>>(
      module, "conv2d_moments",
      "(In x, In weight, Out out, Geometry geometry, Epilogue epilogue, Out moments)");
  bind_kernel<MomentsCall<&check_batch_norm, &cuda::batch_norm_of_moments>>(
      module, "batch_norm_of_moments",
      "(In x, In moments, In weight, In bias, Out out, Out mean, Out var, double eps, "
      "Epilogue epilogue)");
}

}  // namespace needle::bindings
