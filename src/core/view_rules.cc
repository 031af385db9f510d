#include "view_rules.h"

#include <string>

#include "check.h"

namespace needle {
namespace {

std::string shape_text(const View& v) {
  std::string text = "(";
  for (int i = 0; i < v.ndim; ++i) text += (i == 0 ? "" : ", ") + std::to_string(v.shape[i]);
  return text + (v.ndim == 1 ? ",)" : ")");
}

}  // namespace

void check_same_shape(const char* op, const View& a, const View& b) {
  bool same = a.ndim == b.ndim;
  for (int i = 0; same && i < a.ndim; ++i) same = a.shape[i] == b.shape[i];
  if (!same) {
    raise_error(std::string(op) + ": the views must have one shape, got " + shape_text(a) +
                " and " + shape_text(b) + "; broadcast with stride 0");
  }
}

void check_same_dtype(const char* op, const View& a, const View& b) {
  if (a.dtype != b.dtype) {
    raise_error(std::string(op) + ": the views must have one dtype, got " + name_of(a.dtype) +
                " and " + name_of(b.dtype) + "; convert with copy");
  }
}

void check_dtype(const char* op, const View& a, DType expected) {
  if (a.dtype != expected) {
    raise_error(std::string(op) + ": a view of dtype " + name_of(expected) +
                " is needed here, got " + name_of(a.dtype) + "; convert with copy");
  }
}

void check_reduced_shape(const char* op, const View& a, const View& out) {
  bool fits = a.ndim == out.ndim;
  for (int i = 0; fits && i < a.ndim; ++i) {
    fits = out.shape[i] == a.shape[i] || out.shape[i] == 1;
  }
  if (!fits) {
    raise_error(std::string(op) + ": out must keep every axis at its size or 1, got " +
                shape_text(out) + " for " + shape_text(a) + "; keep reduced axes");
  }
}

void check_labels_in_range(const char* op, const View& labels, std::int64_t classes) {
  for (std::int64_t i = 0; i < labels.shape[0]; ++i) {
    const std::int64_t label = data_of<const std::int64_t>(labels)[i * labels.strides[0]];
    if (label < 0 || label >= classes) {
      raise_error(std::string(op) + ": labels must be in [0, " + std::to_string(classes) +
                  "), got " + std::to_string(label));
    }
  }
}

View row_major(const View& like, void* data) {
  View v = like;
  v.data = data;
  std::int64_t stride = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    v.strides[i] = stride;
    stride *= v.shape[i] > 1 ? v.shape[i] : 1;
  }
  return v;
}

}  // namespace needle
