#include <algorithm>
#include <array>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/group_format.h"
#include "ops/matmul/fake_quantize.h"
#include "ops/support.h"

namespace hearth::ops {

GroupRounding::GroupRounding(const NodeView& node)
    : format(value_named<GroupFormat>(node.attrs.text("format")).value_or(GroupFormat::none)),
      rows(num_rows(node.in_type(0).shape)),
      columns(node.in_type(0).shape.back()),
      group(node.attrs.integer("group")),
      first_step(node.attrs.integer("first_step")) {}

namespace {

/// Number of columns that a thread processes at once.
constexpr int64_t kColumnTile = 16;

template <bool is_gradient>
Inferred infer_groups(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (!is_storage_float(x.dtype) || x.shape.rank() < 1) return refuse_type("x", "floating", x);
  const GroupRounding rounding(node);
  if (rounding.format == GroupFormat::none)
    return refuse(fmt::format("there is no group format '{}'", node.attrs.text("format")));
  if (rounding.group < 0 || (rounding.group > 0 && rounding.columns % rounding.group != 0))
    return refuse(
        fmt::format("rows of {} elements do not consist of groups of {}", rounding.columns, rounding.group));
  if (is_gradient && node.in_type(1) != x) return refuse_type("dy", to_string(x), node.in_type(1));
  constexpr size_t kCounter = counter_index(is_gradient), kRange = range_index(is_gradient);
  if (node.has_input(kCounter) && (node.in_type(kCounter) != Type{.dtype = DType::i64, .shape = {2}}))
    return refuse_type("the counter", "i64[2]", node.in_type(kCounter));
  if (node.has_input(kRange) && node.in_type(kRange) != f32_type({2}))
    return refuse_type("the range", "f32[2]", node.in_type(kRange));
  if (node.has_input(kRange) && covers_all(rounding.format))
    return refuse("the format has a scale per token, but a range is given");
  return same_as_first(node);
}

struct Range2 {
  float min = 0, max = 0;
};
HEARTH_CLONES Range2 range_of(const float* x, int64_t count) {
  constexpr int64_t kLanes = 16;
  float min[kLanes] = {}, max[kLanes] = {};
  const auto add = [&](float value, int64_t lane) {
    min[lane] = value < min[lane] ? value : min[lane];
    max[lane] = value > max[lane] ? value : max[lane];
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) add(x[i + lane], lane);
  for (; i < count; ++i) add(x[i], 0);
  return {*std::min_element(min, min + kLanes), *std::max_element(max, max + kLanes)};
}

/// Rounds x to y; with dy, computes its gradient to y instead.
HEARTH_CLONES void round_group(GroupFormat format, GroupScale scale, const float* x, const float* dy,
                               float* y, int64_t count) {
  if (dy == nullptr) {
    for (int64_t i = 0; i < count; ++i) y[i] = group_value(group_code(format, x[i], scale), scale);
  } else {
    for (int64_t i = 0; i < count; ++i)
      y[i] = is_in_range(format, unlimited_code(format, x[i], scale)) ? dy[i] : 0.0F;
  }
}

/// Arrays of one run in the dtype of x; dy is null except for gradients.
struct Arrays {
  DType dtype;
  const void* x;
  const void* dy;
  void* y;

  void round(GroupFormat format, GroupScale scale, int64_t at, int64_t count) const {
    constexpr int64_t kChunk = 256;
    float x_chunk[kChunk], dy_chunk[kChunk], y_chunk[kChunk];
    for (const int64_t end = at + count; at < end; at += kChunk) {
      const int64_t length = std::min(kChunk, end - at);
      const float* from = cpu::as_f32(dtype, x, at, length, x_chunk);
      const float* gradient = dy == nullptr ? nullptr : cpu::as_f32(dtype, dy, at, length, dy_chunk);
      float* to = run_to_write(dtype, y, at, y_chunk);
      round_group(format, scale, from, gradient, to, length);
      cpu::store_f32(dtype, to, y, at, length);
    }
  }
  Range2 range(int64_t at, int64_t count) const {
    constexpr int64_t kChunk = 256;
    float chunk[kChunk];
    Range2 all;
    for (const int64_t end = at + count; at < end; at += kChunk) {
      const int64_t length = std::min(kChunk, end - at);
      const Range2 part = range_of(cpu::as_f32(dtype, x, at, length, chunk), length);
      all = {std::min(all.min, part.min), std::max(all.max, part.max)};
    }
    return all;
  }
};

/// Rounds columns [first, first + count), each with its scale.
void round_columns(const GroupRounding& rounding, const Arrays& arrays, int64_t first, int64_t count) {
  std::array<Range2, kColumnTile> ranges{};
  std::array<GroupScale, kColumnTile> scales;
  for (int64_t row = 0; row < rounding.rows; ++row) {
    float chunk[kColumnTile];
    const float* x = cpu::as_f32(arrays.dtype, arrays.x, row * rounding.columns + first, count, chunk);
    for (int64_t i = 0; i < count; ++i) {
      Range2& range = ranges[static_cast<size_t>(i)];
      range = {std::min(range.min, x[i]), std::max(range.max, x[i])};
    }
  }
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = group_scale(rounding.format, ranges[i].min, ranges[i].max);
  for (int64_t row = 0; row < rounding.rows; ++row)
    for (int64_t i = 0; i < count; ++i)
      arrays.round(rounding.format, scales[static_cast<size_t>(i)], row * rounding.columns + first + i, 1);
}

void run_groups(const GroupRounding& rounding, const Arrays& arrays, const float* range,
                ThreadPool& threads) {
  if (range != nullptr || rounding.group > 0) {
    const int64_t size = range == nullptr ? rounding.group : std::min(kTile, rounding.num_elements());
    const int64_t count = (rounding.num_elements() + size - 1) / size;
    threads.parallel_for(count, std::max<int64_t>(1, kGrain / size), [&](Range groups) {
      for (int64_t group = groups.begin; group < groups.end; ++group) {
        const int64_t at = group * size, length = std::min(size, rounding.num_elements() - at);
        const Range2 found = range == nullptr ? arrays.range(at, length) : Range2{range[0], range[1]};
        arrays.round(rounding.format, group_scale(rounding.format, found.min, found.max), at, length);
      }
    });
    return;
  }
  threads.parallel_for((rounding.columns + kColumnTile - 1) / kColumnTile, 1, [&](Range tiles) {
    for (int64_t first = tiles.begin * kColumnTile;
         first < std::min(tiles.end * kColumnTile, rounding.columns); first += kColumnTile)
      round_columns(rounding, arrays, first, std::min(kColumnTile, rounding.columns - first));
  });
}

/// Returns an optional input; null if it is absent.
template <typename T>
const T* optional_input(const KernelArgs& args, size_t index) {
  return index < args.in.size() ? args.input<T>(index) : nullptr;
}

template <bool is_gradient>
Kernel kernel_of_groups(const NodeView& node) {
  const auto run = [rounding = GroupRounding(node), dtype = node.in_type(0).dtype](const KernelArgs& args) {
    const Arrays arrays{
        .dtype = dtype, .x = args.in[0], .dy = is_gradient ? args.in[1] : nullptr, .y = args.out[0]};
    const auto* counter = optional_input<int64_t>(args, counter_index(is_gradient));
    if (counter != nullptr && *counter < rounding.first_step) {
      const auto* from = static_cast<const std::byte*>(is_gradient ? arrays.dy : arrays.x);
      std::copy_n(from, rounding.num_elements() * dtype_bytes(dtype), static_cast<std::byte*>(arrays.y));
      return;
    }
    run_groups(rounding, arrays, optional_input<float>(args, range_index(is_gradient)), *args.threads);
  };
  return {.run = run};
}

/// Rounds in f32 as the kernels do, because a product that differs in its last bit may get another code.
template <bool is_gradient>
void reference_of_groups(const ReferenceArgs& args) {
  const GroupRounding rounding(args.node);
  constexpr size_t kCounter = counter_index(is_gradient), kRange = range_index(is_gradient);
  const auto has = [&](size_t index) { return index < args.in.size() && args.node.has_input(index); };
  args.out[0] = args.in[is_gradient ? 1 : 0];
  if (has(kCounter) && args.in[kCounter][0] < static_cast<double>(rounding.first_step)) return;
  const auto round = [&](int64_t first, int64_t stride, int64_t count) {
    std::vector<float> x(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      x[static_cast<size_t>(i)] = static_cast<float>(args.in[0][static_cast<size_t>(first + i * stride)]);
    Range2 range = range_of(x.data(), count);
    if (has(kRange)) range = {static_cast<float>(args.in[kRange][0]), static_cast<float>(args.in[kRange][1])};
    const GroupScale scale = group_scale(rounding.format, range.min, range.max);
    for (int64_t i = 0; i < count; ++i) {
      double& out = args.out[0][static_cast<size_t>(first + i * stride)];
      const float code = unlimited_code(rounding.format, x[static_cast<size_t>(i)], scale);
      if (!is_gradient)
        out = group_value(group_code(rounding.format, x[static_cast<size_t>(i)], scale), scale);
      else if (!is_in_range(rounding.format, code))
        out = 0;
    }
  };
  for (int64_t at = 0; rounding.group > 0 && at < rounding.num_elements(); at += rounding.group)
    round(at, 1, rounding.group);
  for (int64_t column = 0; rounding.group == 0 && column < rounding.columns; ++column)
    round(column, rounding.columns, rounding.rows);
}

template <bool is_gradient>
std::vector<Sample> samples_of_groups() {
  const SampleInput counter = filled(SampleInput::Fill::one, {2}, DType::i64);
  std::vector<Sample> result;
  const auto sample = [&](GroupFormat format, const Shape& shape, int64_t group, int64_t first_step = 0,
                          std::vector<SampleInput> options = {}, DType dtype = DType::f32) {
    std::vector<SampleInput> in = {normal(shape, dtype)};
    if (is_gradient) in.push_back(normal(shape, dtype));
    in.insert(in.end(), options.begin(), options.end());
    result.push_back(
        {.in = std::move(in),
         .attrs = {{"format", std::string(name_of(format))}, {"group", group}, {"first_step", first_step}},
         .tolerance = 0});
  };
  for (const GroupFormat format :
       {GroupFormat::int4, GroupFormat::int8, GroupFormat::fp8, GroupFormat::int8_token,
        GroupFormat::fp8_token, GroupFormat::int8_affine, GroupFormat::int8_channel}) {
    sample(format, {5, 128}, 32);
    sample(format, {130, 96}, 96);
    sample(format, {7, 50}, 0);
    sample(format, {3, 64}, 64, 0, {}, DType::bf16);
  }
  sample(GroupFormat::int4, {7, 32}, 32, 1, {counter});
  sample(GroupFormat::int4, {7, 32}, 32, 2, {counter});
  sample(GroupFormat::int8, {3, 3, 5, 40}, 0, 1, {counter});
  sample(GroupFormat::int8_affine, {2, 9, 1500}, 0, 1, {counter, normal({2})});
  sample(GroupFormat::int8, {40}, 0, 0, {absent(), filled(SampleInput::Fill::unit, {2})});
  return result;
}

std::vector<ValueId> group_gradient(const VjpContext& c) {
  std::vector<ValueId> grads(c.node.inputs.size(), kNone);
  grads[0] = c.grad_out[0];
  if (covers_all(*value_named<GroupFormat>(c.node.attrs.text("format")))) return grads;
  std::vector<ValueId> inputs = c.node.inputs;
  inputs.insert(inputs.begin() + 1, c.grad_out[0]);
  grads[0] = emit(c, "fake_quantize_groups_grad", std::move(inputs), c.node.attrs);
  return grads;
}

ir::Cost cost_of_groups(const NodeView& node) { return cost_per_element(node, 12); }

}  // namespace

const OpDef fake_quantize_groups{
    .name = "fake_quantize_groups",
    .doc =
        "fake_quantize_groups(x, counter i64[2], range f32[2]){format, group, first_step}: x rounded to the "
        "values that a group format can store, with a scale per group of adjacent elements of the last axis, "
        "per index of the last axis (group 0), or for all elements from a given [min, max]; x itself while "
        "the "
        "counter's step is below first_step",
    .inputs = {"x", "counter?", "range?"},
    .infer = infer_groups<false>,
    .vjp = group_gradient,
    .cpu = kernel_of_groups<false>,
    .gpu = true,
    .reference = reference_of_groups<false>,
    .cost = cost_of_groups,
    .num_following = 1,
    .samples = samples_of_groups<false>};

const OpDef fake_quantize_groups_grad{
    .name = "fake_quantize_groups_grad",
    .doc =
        "fake_quantize_groups_grad(x, dy, counter i64[2], range f32[2]){format, group, first_step}: dy where "
        "the "
        "code of x is in the range of the format or the step is below first_step, 0 elsewhere",
    .inputs = {"x", "dy", "counter?", "range?"},
    .infer = infer_groups<true>,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = kernel_of_groups<true>,
    .gpu = true,
    .reference = reference_of_groups<true>,
    .cost = cost_of_groups,
    .samples = samples_of_groups<true>};

}  // namespace hearth::ops
