#include "ops/shape/shape.h"

#include <cstring>

#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer_reshape(const NodeView& node) {
  const Shape shape(node.attrs.list("shape"));
  if (shape.num_elements() != node.in[0].shape.num_elements()) {
    return refuse(fmt::format("cannot reshape {} to {}: the numbers of elements differ",
                              to_string(node.in[0].shape), to_string(shape)));
  }
  return {.out = {{.dtype = node.in[0].dtype, .shape = shape}}, .error = ""};
}

Kernel reshape_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.in[0].num_bytes());
  return {.run = [=](const KernelArgs& args) {
    if (args.out[0] != args.in[0]) std::memcpy(args.out[0], args.in[0], num_bytes);
  }};
}

Inferred infer_transpose(const NodeView& node) {
  const auto& perm = node.attrs.list("perm");
  const Shape& in = node.in[0].shape;
  std::vector<int64_t> axes;
  std::vector<char> seen(perm.size(), 0);
  if (std::ssize(perm) != in.rank()) return refuse(fmt::format("expected {} axes in perm", in.rank()));
  for (const int64_t axis : perm) {
    if (axis < 0 || axis >= in.rank() || seen[static_cast<size_t>(axis)]++ != 0)
      return refuse("perm is not a permutation");
    axes.push_back(in[static_cast<int>(axis)]);
  }
  return {.out = {{.dtype = node.in[0].dtype, .shape = Shape(axes)}}, .error = ""};
}

/// Lengths and input strides (in elements) of the output's axes, padded to kMaxRank axes.
struct Walk {
  std::array<int64_t, Shape::kMaxRank> length;
  std::array<int64_t, Shape::kMaxRank> stride;
};

Walk make_walk(const Shape& in, const std::vector<int64_t>& perm) {
  Walk walk;
  walk.length.fill(1);
  walk.stride.fill(0);
  std::array<int64_t, Shape::kMaxRank> in_stride{};
  int64_t step = 1;
  for (int axis = in.rank(); axis-- > 0;) {
    in_stride[static_cast<size_t>(axis)] = step;
    step *= in[axis];
  }
  const size_t lead = Shape::kMaxRank - perm.size();
  for (size_t j = 0; j < perm.size(); ++j) {
    walk.length[lead + j] = in[static_cast<int>(perm[j])];
    walk.stride[lead + j] = in_stride[static_cast<size_t>(perm[j])];
  }
  return walk;
}

/// Calls copy(output index, input index) for the output elements `range` of a transpose.
template <typename Copy>
void gather(const Walk& walk, Range range, Copy copy) {
  for (int64_t out = range.begin; out < range.end; ++out) {
    int64_t rest = out;
    int64_t in = 0;
    for (size_t j = Shape::kMaxRank; j-- > 0;) {
      in += rest % walk.length[j] * walk.stride[j];
      rest /= walk.length[j];
    }
    copy(out, in);
  }
}

Kernel transpose_kernel(const NodeView& node) {
  const Walk walk = make_walk(node.in[0].shape, node.attrs.list("perm"));
  const int64_t count = node.in[0].shape.num_elements();
  const int64_t size = dtype_bytes(node.in[0].dtype);
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      gather(walk, range, [&](int64_t out, int64_t in) {
        std::memcpy(args.output<char>(0) + out * size, args.input<char>(0) + in * size,
                    static_cast<size_t>(size));
      });
    });
  }};
}

std::vector<ValueId> transpose_vjp(const VjpContext& c) {
  const auto& perm = c.node.attrs.list("perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t j = 0; j < perm.size(); ++j) inverse[static_cast<size_t>(perm[j])] = static_cast<int64_t>(j);
  return {emit(c, "transpose", {c.grad_out[0]}, {{"perm", inverse}})};
}

}  // namespace

const OpDef reshape{.name = "reshape",
                    .doc = "the same bytes under another shape",
                    .inputs = {"x"},
                    .infer = infer_reshape,
                    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
                      const auto axes = axes_of(c.graph.type(c.node.inputs[0]).shape);
                      return {emit(c, "reshape", {c.grad_out[0]}, {{"shape", axes}})};
                    },
                    .cpu = reshape_kernel,
                    .reference = [](const ReferenceArgs& args) { args.out[0] = args.in[0]; },
                    .is_view = true,
                    .samples =
                        [] {
                          return std::vector<Sample>{
                              {.in = {normal({2, 3, 4})}, .attrs = {{"shape", std::vector<int64_t>{6, 4}}}}};
                        }};

const OpDef transpose{
    .name = "transpose",
    .doc = "permuted axes: output axis j is input axis perm[j]",
    .inputs = {"x"},
    .infer = infer_transpose,
    .vjp = transpose_vjp,
    .cpu = transpose_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) {
          const Walk walk = make_walk(args.node.in[0].shape, args.node.attrs.list("perm"));
          gather(walk, {0, std::ssize(args.out[0])}, [&](int64_t out, int64_t in) {
            args.out[0][static_cast<size_t>(out)] = args.in[0][static_cast<size_t>(in)];
          });
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {normal({3, 5})}, .attrs = {{"perm", std::vector<int64_t>{1, 0}}}},
              {.in = {normal({2, 3, 4, 5})}, .attrs = {{"perm", std::vector<int64_t>{0, 3, 1, 2}}}},
              {.in = {normal({5, 1, 3, 20}, DType::bf16)},
               .attrs = {{"perm", std::vector<int64_t>{3, 0, 2, 1}}}},
              {.in = {indices({3, 5}, 200, DType::u8)}, .attrs = {{"perm", std::vector<int64_t>{1, 0}}}},
              {.in = {indices({3, 5}, 200, DType::i64)}, .attrs = {{"perm", std::vector<int64_t>{1, 0}}}}};
        }};

}  // namespace hearth::ops
