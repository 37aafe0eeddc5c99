#include <cmath>
#include <limits>

#include "backend/cpu/convert.h"
#include "ops/loss/loss.h"
#include "ops/row_kernel.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Rows are computed in f32 in two buffers per thread, so that any storage dtype and any length works.
struct Rows {
  DType dtype;
  int64_t count;
  int64_t width;

  /// Calls row(args, index, two buffers of `width` floats) for each row.
  template <typename Row>
  Kernel kernel(int num_threads, Row row) const {
    const int64_t grain = std::max<int64_t>(1, 1024 / std::max<int64_t>(1, width));
    const auto parts = static_cast<int>(std::clamp<int64_t>(count / grain, 1, num_threads));
    return row_kernel(count, parts, 2 * width,
                      [row, width = width](const KernelArgs& args, int64_t r, float* scratch) {
                        row(args, r, scratch, scratch + width);
                      });
  }
};
Rows rows_of(const Type& type) {
  return {.dtype = type.dtype, .count = num_rows(type.shape), .width = type.shape.back()};
}

/// Log of the sum of exponentials of one row (shifted by its maximum so that nothing overflows).
template <typename T>
double log_sum_exp(const T* row, int64_t width) {
  const double most = static_cast<double>(*std::max_element(row, row + width));
  double sum = 0;
  for (int64_t k = 0; k < width; ++k)
    sum += static_cast<double>(std::exp(static_cast<T>(row[k] - static_cast<T>(most))));
  return most + std::log(sum);
}

/// Label smoothing: the target is (1 - s) at the label plus s / K everywhere (arXiv 1512.00567).
template <typename T>
double loss_of(const T* row, int64_t width, int64_t label, double smoothing) {
  if (label < 0 || label >= width) return std::numeric_limits<double>::quiet_NaN();
  const double total = log_sum_exp(row, width);
  const double of_label = total - static_cast<double>(row[label]);
  if (smoothing == 0) return of_label;
  double mean = 0;
  for (int64_t k = 0; k < width; ++k) mean += static_cast<double>(row[k]) / static_cast<double>(width);
  return (1 - smoothing) * of_label + smoothing * (total - mean);
}

template <typename T>
void loss_gradient(const T* row, int64_t width, int64_t label, double smoothing, T dloss, T* out) {
  const bool valid = label >= 0 && label < width;
  const auto total =
      static_cast<T>(valid ? log_sum_exp(row, width) : std::numeric_limits<double>::quiet_NaN());
  const auto everywhere = static_cast<T>(smoothing / static_cast<double>(width));
  for (int64_t k = 0; k < width; ++k) out[k] = dloss * (std::exp(row[k] - total) - everywhere);
  if (valid) out[label] -= dloss * static_cast<T>(1 - smoothing);
}

template <typename T>
void softmax_row(const T* in, int64_t width, T* out) {
  const T most = *std::max_element(in, in + width);
  double sum = 0;
  for (int64_t k = 0; k < width; ++k) sum += static_cast<double>(out[k] = std::exp(in[k] - most));
  for (int64_t k = 0; k < width; ++k) out[k] *= static_cast<T>(1 / sum);
}

template <typename T>
void softmax_grad_row(const T* dy, const T* y, int64_t width, T* dx) {
  double dot = 0;
  for (int64_t k = 0; k < width; ++k) dot += static_cast<double>(dy[k]) * static_cast<double>(y[k]);
  for (int64_t k = 0; k < width; ++k) dx[k] = y[k] * (dy[k] - static_cast<T>(dot));
}

double smoothing_of(const Attrs& attrs) { return attrs.real_or("smoothing", 0); }

std::string check_logits(const NodeView& node) {
  const Type& logits = node.in_type(0);
  if (logits.shape.rank() != 2 || !is_storage_float(logits.dtype) || logits.shape[1] < 1)
    return fmt::format("expected logits to be floating [N, K], got {}", to_string(logits));
  if (node.in_type(1) != Type{.dtype = DType::i32, .shape = {logits.shape[0]}})
    return fmt::format("expected labels to be i32[{}], got {}", logits.shape[0], to_string(node.in_type(1)));
  const double smoothing = smoothing_of(node.attrs);
  return smoothing >= 0 && smoothing < 1 ? ""
                                         : fmt::format("expected smoothing in [0, 1), got {}", smoothing);
}

Inferred infer_loss(const NodeView& node) {
  if (auto error = check_logits(node); !error.empty()) return refuse(error);
  return {.out = {f32_type({node.in_type(0).shape[0]})}, .error = ""};
}
Inferred infer_loss_grad(const NodeView& node) {
  if (auto error = check_logits(node); !error.empty()) return refuse(error);
  if (node.in_type(2) != f32_type({node.in_type(0).shape[0]}))
    return refuse_type("dlosses", "f32[N]", node.in_type(2));
  return {.out = {node.in_type(0)}, .error = ""};
}
Inferred infer_correct(const NodeView& node) {
  if (auto error = check_logits(node); !error.empty()) return refuse(error);
  return {.out = {kScalar}, .error = ""};
}
Inferred infer_softmax(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() < 1 || !is_storage_float(x.dtype)) return refuse_type("x", "floating with an axis", x);
  return {.out = {x}, .error = ""};
}
Inferred infer_softmax_grad(const NodeView& node) {
  if (node.in_type(1) != node.in_type(0))
    return refuse_type("y", to_string(node.in_type(0)), node.in_type(1));
  return infer_softmax(node);
}

Kernel loss_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.in_type(0));
  return rows.kernel(node.num_threads, [rows, smoothing = smoothing_of(node.attrs)](
                                           const KernelArgs& args, int64_t r, float* a, float*) {
    const float* row = cpu::as_f32(rows.dtype, args.in[0], r * rows.width, rows.width, a);
    args.output<float>(0)[r] =
        static_cast<float>(loss_of(row, rows.width, args.input<int32_t>(1)[r], smoothing));
  });
}

Kernel loss_grad_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.in_type(0));
  return rows.kernel(node.num_threads, [rows, smoothing = smoothing_of(node.attrs)](
                                           const KernelArgs& args, int64_t r, float* a, float* b) {
    const int64_t at = r * rows.width;
    const float* row = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, a);
    float* out = run_to_write(rows.dtype, args.out[0], at, b);
    loss_gradient(row, rows.width, args.input<int32_t>(1)[r], smoothing, args.input<float>(2)[r], out);
    cpu::store_f32(rows.dtype, out, args.out[0], at, rows.width);
  });
}

Kernel softmax_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.in_type(0));
  return rows.kernel(node.num_threads, [rows](const KernelArgs& args, int64_t r, float* a, float* b) {
    const int64_t at = r * rows.width;
    float* out = run_to_write(rows.dtype, args.out[0], at, b);
    softmax_row(cpu::as_f32(rows.dtype, args.in[0], at, rows.width, a), rows.width, out);
    cpu::store_f32(rows.dtype, out, args.out[0], at, rows.width);
  });
}

Kernel softmax_grad_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.in_type(0));
  return rows.kernel(node.num_threads, [rows](const KernelArgs& args, int64_t r, float* a, float* b) {
    const int64_t at = r * rows.width;
    const float* dy = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, a);
    const float* y = cpu::as_f32(rows.dtype, args.in[1], at, rows.width, b);
    float* dx = run_to_write(rows.dtype, args.out[0], at, a);
    softmax_grad_row(dy, y, rows.width, dx);
    cpu::store_f32(rows.dtype, dx, args.out[0], at, rows.width);
  });
}

Kernel correct_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.in_type(0));
  Kernel kernel = rows.kernel(1, [rows](const KernelArgs& args, int64_t r, float* a, float*) {
    const float* row = cpu::as_f32(rows.dtype, args.in[0], r * rows.width, rows.width, a);
    const auto best = std::max_element(row, row + rows.width) - row;
    args.output<float>(0)[0] += best == args.input<int32_t>(1)[r] ? 1.0F : 0.0F;
  });
  kernel.run = [count_rows = std::move(kernel.run)](const KernelArgs& args) {
    args.output<float>(0)[0] = 0;
    count_rows(args);
  };
  return kernel;
}

/// Calls row(index, offset) for each row of input 0.
template <typename Row>
void reference_rows(const ReferenceArgs& args, Row row) {
  const Rows rows = rows_of(args.node.in_type(0));
  for (int64_t r = 0; r < rows.count; ++r) row(static_cast<size_t>(r), r * rows.width, rows.width);
}
void loss_reference(const ReferenceArgs& args) {
  reference_rows(args, [&](size_t r, int64_t at, int64_t width) {
    args.out[0][r] = loss_of(args.in[0].data() + at, width, static_cast<int64_t>(args.in[1][r]),
                             smoothing_of(args.node.attrs));
  });
}
void loss_grad_reference(const ReferenceArgs& args) {
  reference_rows(args, [&](size_t r, int64_t at, int64_t width) {
    loss_gradient(args.in[0].data() + at, width, static_cast<int64_t>(args.in[1][r]),
                  smoothing_of(args.node.attrs), args.in[2][r], args.out[0].data() + at);
  });
}
void softmax_reference(const ReferenceArgs& args) {
  reference_rows(args, [&](size_t, int64_t at, int64_t width) {
    softmax_row(args.in[0].data() + at, width, args.out[0].data() + at);
  });
}
void softmax_grad_reference(const ReferenceArgs& args) {
  reference_rows(args, [&](size_t, int64_t at, int64_t width) {
    softmax_grad_row(args.in[0].data() + at, args.in[1].data() + at, width, args.out[0].data() + at);
  });
}
void correct_reference(const ReferenceArgs& args) {
  args.out[0][0] = 0;
  reference_rows(args, [&](size_t r, int64_t at, int64_t width) {
    const double* row = args.in[0].data() + at;
    args.out[0][0] += static_cast<double>(std::max_element(row, row + width) - row) == args.in[1][r] ? 1 : 0;
  });
}

std::vector<ValueId> loss_vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone, kNone};
  const ir::Node node = context.node;
  return {emit(context, "softmax_cross_entropy_grad", {node.inputs[0], node.inputs[1], context.grad_out[0]},
               node.attrs),
          kNone};
}
std::vector<ValueId> softmax_vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone};
  return {emit(context, "softmax_grad", {context.grad_out[0], context.node.outputs[0]})};
}

Cost cost(const NodeView& node) { return stream_cost(node, 8); }

Attrs smoothing(double value) { return {{"smoothing", value}}; }
std::vector<Sample> loss_samples() {
  return {{.in = {normal({7, 10}), labels(7, 10)}, .attrs = smoothing(0)},
          {.in = {normal({5, 1003}), labels(5, 1003)}, .attrs = smoothing(0.1)},
          {.in = {normal({6, 9}, DType::bf16), labels(6, 9)}, .attrs = smoothing(0)}};
}
std::vector<Sample> correct_samples() {
  std::vector<Sample> made = loss_samples();
  made.push_back({.in = {normal({300, 3}), labels(300, 3)}});
  return made;
}
std::vector<Sample> loss_grad_samples() {
  std::vector<Sample> made = loss_samples();
  for (Sample& sample : made) sample.in.push_back(normal(sample.in[1].type.shape));
  return made;
}
std::vector<Sample> softmax_samples() {
  return {{.in = {normal({7, 10})}, .attrs = {}},
          {.in = {normal({2, 3, 1003})}, .attrs = {}},
          {.in = {normal({6, 9}, DType::bf16)}, .attrs = {}}};
}
std::vector<Sample> softmax_grad_samples() {
  std::vector<Sample> made = softmax_samples();
  for (Sample& sample : made) sample.in.push_back(sample.in[0]);
  return made;
}

}  // namespace

const OpDef softmax_cross_entropy{
    .name = "softmax_cross_entropy",
    .doc = "softmax_cross_entropy(logits [N, K], labels i32 [N]): losses f32 [N], with label smoothing",
    .inputs = {"logits", "labels"},
    .infer = infer_loss,
    .vjp = loss_vjp,
    .cpu = loss_kernel,
    .gpu = true,
    .reference = loss_reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = loss_samples};

const OpDef softmax_cross_entropy_grad{
    .name = "softmax_cross_entropy_grad",
    .doc = "softmax_cross_entropy_grad(logits, labels, dlosses [N]): dlogits",
    .inputs = {"logits", "labels", "dlosses"},
    .infer = infer_loss_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = loss_grad_kernel,
    .gpu = true,
    .reference = loss_grad_reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = loss_grad_samples};

const OpDef softmax{.name = "softmax",
                    .doc = "softmax over the last axis",
                    .inputs = {"x"},
                    .infer = infer_softmax,
                    .vjp = softmax_vjp,
                    .cpu = softmax_kernel,
                    .gpu = true,
                    .reference = softmax_reference,
                    .cost = cost,
                    .precision = ir::Precision::full,
                    .samples = softmax_samples};

const OpDef softmax_grad{.name = "softmax_grad",
                         .doc = "softmax_grad(dy, y): y (dy - sum(dy y))",
                         .inputs = {"dy", "y"},
                         .infer = infer_softmax_grad,
                         .no_vjp_because = kNoSecondDerivatives,
                         .cpu = softmax_grad_kernel,
                         .gpu = true,
                         .reference = softmax_grad_reference,
                         .cost = cost,
                         .precision = ir::Precision::full,
                         .samples = softmax_grad_samples};

const OpDef count_correct{
    .name = "count_correct",
    .doc = "count_correct(logits, labels): how many rows have their first maximum at the label",
    .inputs = {"logits", "labels"},
    .infer = infer_correct,
    .no_vjp_because = "a count has no gradient",
    .cpu = correct_kernel,
    .gpu = true,
    .reference = correct_reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = correct_samples};

}  // namespace hearth::ops
