#include "backend/cpu/convert.h"
#include "ops/loss/loss.h"
#include "ops/loss/row_blocks.h"

namespace hearth::ops {
namespace {

/// Number of elements converted to f32 at a time.
constexpr int64_t kRun = 4096;

/// Calls row(index, the row's elements as f32) for the rows `range` of an array; `scratch` has
/// scratch_floats(type).
template <typename Row>
void for_each_row(const Type& type, const void* data, Range range, float* scratch, Row row) {
  const int64_t width = type.shape.back(), step = std::max<int64_t>(1, kRun / width);
  for (int64_t begin = range.begin; begin < range.end; begin += step) {
    const int64_t rows = std::min(step, range.end - begin);
    const float* x = cpu::as_f32(type.dtype, data, begin * width, rows * width, scratch);
    for (int64_t r = 0; r < rows; ++r) row(begin + r, x + r * width);
  }
}
int64_t scratch_floats(const Type& type) { return std::max(kRun, type.shape.back()); }

/// Returns the index of the first maximum of x [width].
int64_t argmax_of(const float* x, int64_t width) {
  int64_t best = 0;
  for (int64_t k = 1; k < width; ++k) best = x[k] > x[best] ? k : best;
  return best;
}

Inferred infer_argmax(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() < 1 || x.shape.back() < 1 || !is_storage_float(x.dtype))
    return refuse_type("x", "floating [..., K]", x);
  const std::vector<int64_t> axes(x.shape.begin(), x.shape.end() - 1);
  return {.out = {{.dtype = DType::i32, .shape = Shape(std::span<const int64_t>(axes))}}, .error = ""};
}
Kernel argmax_kernel(const NodeView& node) {
  const Type x = node.in_type(0);
  const int64_t rows = num_rows(x.shape), floats = scratch_floats(x);
  const auto parts =
      static_cast<int>(std::clamp<int64_t>(x.shape.num_elements() / kGrain, 1, node.num_threads));
  const auto run = [=](const KernelArgs& args) {
    args.threads->for_parts(parts, [&](int part) {
      float* scratch = reinterpret_cast<float*>(args.workspace) + part * floats;
      for_each_row(x, args.in[0], split_range(rows, parts, part), scratch, [&](int64_t r, const float* row) {
        args.output<int32_t>(0)[r] = static_cast<int32_t>(argmax_of(row, x.shape.back()));
      });
    });
  };
  return {.run = run, .workspace_bytes = parts * floats * int64_t{sizeof(float)}};
}
void argmax_reference(const ReferenceArgs& args) {
  const int64_t width = args.node.in_type(0).shape.back();
  for (size_t r = 0; r < args.out[0].size(); ++r) {
    const auto row = args.in[0].begin() + static_cast<int64_t>(r) * width;
    args.out[0][r] = static_cast<double>(std::max_element(row, row + width) - row);
  }
}

Inferred infer_correct(const NodeView& node) {
  if (auto error = logits_fault(node); !error.empty()) return refuse(error);
  return {.out = {kScalar}, .error = ""};
}
Kernel correct_kernel(const NodeView& node) {
  const Type logits = node.in_type(0);
  const auto run = [=](const KernelArgs& args) {
    float correct = 0;
    for_each_row(logits, args.in[0], {0, logits.shape[0]}, reinterpret_cast<float*>(args.workspace),
                 [&](int64_t r, const float* row) {
                   if (argmax_of(row, logits.shape[1]) == args.input<int32_t>(1)[r]) correct += 1;
                 });
    args.output<float>(0)[0] = correct;
  };
  return {.run = run, .workspace_bytes = scratch_floats(logits) * int64_t{sizeof(float)}};
}
void correct_reference(const ReferenceArgs& args) {
  const int64_t width = args.node.in_type(0).shape[1];
  args.out[0][0] = 0;
  for (size_t r = 0; r < args.in[1].size(); ++r) {
    const auto row = args.in[0].begin() + static_cast<int64_t>(r) * width;
    args.out[0][0] += static_cast<double>(std::max_element(row, row + width) - row) == args.in[1][r] ? 1 : 0;
  }
}

Inferred infer_one_hot(const NodeView& node) {
  const Type& labels = node.in_type(0);
  const int64_t classes = node.attrs.integer("classes");
  if (labels.dtype != DType::i32 || labels.shape.rank() >= Shape::kMaxRank)
    return refuse_type("labels", "i32 [...]", labels);
  if (classes < 1 || classes > (int64_t{1} << 30))
    return refuse(fmt::format("expected a number of classes in [1, 2^30], got {}", classes));
  std::vector<int64_t> axes = axes_of(labels.shape);
  axes.push_back(classes);
  return {.out = {f32_type(Shape(std::span<const int64_t>(axes)))}, .error = ""};
}
Kernel one_hot_kernel(const NodeView& node) {
  const int64_t rows = node.in_type(0).shape.num_elements(), classes = node.attrs.integer("classes");
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows, std::max<int64_t>(1, kGrain / classes), [&](Range range) {
      float* out = args.output<float>(0);
      std::fill(out + range.begin * classes, out + range.end * classes, 0.0F);
      for (int64_t r = range.begin; r < range.end; ++r) {
        const int32_t label = args.input<int32_t>(0)[r];
        if (label >= 0 && label < classes) out[r * classes + label] = 1;
      }
    });
  }};
}
void one_hot_reference(const ReferenceArgs& args) {
  const auto classes = static_cast<size_t>(args.node.attrs.integer("classes"));
  for (size_t i = 0; i < args.out[0].size(); ++i)
    args.out[0][i] = args.in[0][i / classes] == static_cast<double>(i % classes) ? 1 : 0;
}

Cost cost(const NodeView& node) { return stream_cost(node, 1); }

Sample one_hot_sample(SampleInput labels, int64_t classes) {
  return {.in = {std::move(labels)}, .attrs = {{"classes", classes}}};
}

}  // namespace

const OpDef count_correct{
    .name = "count_correct",
    .doc = "count_correct(logits, labels): the number of rows with their first maximum at the label",
    .inputs = {"logits", "labels"},
    .infer = infer_correct,
    .no_vjp_because = "counts are not differentiable",
    .cpu = correct_kernel,
    .gpu = true,
    .reference = correct_reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = [] {
      return std::vector<Sample>{{.in = {normal({7, 10}), labels(7, 10)}},
                                 {.in = {normal({5, 1003}), labels(5, 1003)}},
                                 {.in = {normal({6, 9}, DType::bf16), labels(6, 9)}},
                                 {.in = {normal({300, 3}), labels(300, 3)}}};
    }};

const OpDef argmax{.name = "argmax",
                   .doc = "argmax(x [..., K]): i32 [...], the index of the first maximum",
                   .inputs = {"x"},
                   .infer = infer_argmax,
                   .no_vjp_because = "indices are not differentiable",
                   .cpu = argmax_kernel,
                   .gpu = true,
                   .reference = argmax_reference,
                   .cost = cost,
                   .samples = [] {
                     return std::vector<Sample>{{.in = {normal({7, 10})}},
                                                {.in = {normal({5, 1003})}},
                                                {.in = {normal({2, 50, 3, 2})}},
                                                {.in = {normal({6, 33}, DType::f16)}},
                                                {.in = {normal({2, 300, 21}, DType::bf16)}},
                                                {.in = {filled(SampleInput::Fill::one, {4, 5})}}};
                   }};

const OpDef one_hot{
    .name = "one_hot",
    .doc = "one_hot(labels i32 [...]): f32 [..., classes], 1 at the label; zeros for an invalid label",
    .inputs = {"labels"},
    .infer = infer_one_hot,
    .no_vjp_because = "labels are not differentiable",
    .cpu = one_hot_kernel,
    .gpu = true,
    .reference = one_hot_reference,
    .cost = cost,
    .samples = [] {
      return std::vector<Sample>{one_hot_sample(labels_or_none(300, 3), 3), one_hot_sample(labels(9, 12), 10),
                                 one_hot_sample(indices({2, 3, 5}, 40, DType::i32), 37),
                                 one_hot_sample(indices({2, 3}, 400, DType::i32), 399)};
    }};

}  // namespace hearth::ops
