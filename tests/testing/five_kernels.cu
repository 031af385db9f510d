// Five of the ten functions of a package written by new_backend --kind cuda, to show that its
// view.h and launch.h suffice to write them. Built for the CPU's emulator by test_cuda_package.py.
#include "launch.h"

namespace {

template <class From, class To>
__global__ void copy_kernel(Size n, View a, View out) {
  const Size i = thread_number();
  if (i >= n) return;
  const From x = a.as<From>()[a.place(i)];
  if constexpr (std::is_same_v<To, bool>) {
    out.as<To>()[out.place(i)] = x != From(0);
  } else {
    out.as<To>()[out.place(i)] = static_cast<To>(x);
  }
}

template <class T>
__global__ void fill_kernel(Size n, View out, T value) {
  const Size i = thread_number();
  if (i < n) out.as<T>()[out.place(i)] = value;
}

// The memory of a buffer, row-major, in the shape of `like`.
View compact(const Buffer& buffer, View like) {
  like.data = buffer.memory;
  Size step = 1;
  for (int axis = like.axes; axis-- > 0; step *= like.shape[axis]) like.strides[axis] = step;
  return like;
}

}  // namespace

std::unique_ptr<Buffer> allocate(Size size, DType dtype) {
  return std::make_unique<Buffer>(size, dtype);
}

void copy(const View& a, const View& out) {
  dispatch(a.dtype, [&](auto from) {
    dispatch(out.dtype, [&](auto to) {
      launch(out.count(), copy_kernel<decltype(from), decltype(to)>, a, out);
    });
  });
}

void upload(const void* source, const View& out) {
  const Buffer staged(out.count(), out.dtype);
  if (staged.size == 0) return;
  to_device(staged.memory, source, staged.size * size_of(out.dtype));
  copy(compact(staged, out), out);
}

void download(const View& a, void* result) {
  const Buffer staged(a.count(), a.dtype);
  if (staged.size == 0) return;
  copy(a, compact(staged, a));
  to_host(result, staged.memory, staged.size * size_of(a.dtype));
}

void fill(const View& out, Number value) {
  dispatch(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(out.count(), fill_kernel<T>, out, value.as<T>());
  });
}

void unary(const std::string&, const View&, const View&) { needle::not_implemented("unary"); }
void binary(const std::string&, const Operand&, const Operand&, const View&) {
  needle::not_implemented("binary");
}
void where(const View&, const Operand&, const Operand&, const View&) {
  needle::not_implemented("where");
}
void reduce(const std::string&, const View&, const View&) { needle::not_implemented("reduce"); }
void matmul(const View&, const View&, const View&) { needle::not_implemented("matmul"); }
