#include "base/pruning.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

const Type kThreshold{.dtype = DType::i32, .shape = {2}};
/// Max number of elements whose scores are compared: an index of prune_key() has 32 bits.
constexpr int64_t kMaxElements = int64_t{1} << 32;

Type mask_of(const Type& values) {
  return {.dtype = DType::u8, .shape = {num_mask_bytes(values.shape.num_elements())}};
}

/// Returns an error unless the mask fits `values`; empty if valid.
std::string check_mask(const Type& values, const Type& mask) {
  if (mask == mask_of(values)) return "";
  return fmt::format("expected the mask to be {}, got {}", to_string(mask_of(values)), to_string(mask));
}

bool sorts_by_value(const NodeView& node) { return node.attrs.integer_or("by_value", 0) != 0; }

/// Calls body(first, end) for ranges of elements that begin at a byte of the mask, in parallel.
template <typename Body>
void for_mask_bytes(int64_t count, ThreadPool& threads, Body body) {
  threads.parallel_for(num_mask_bytes(count), 1024, [&](Range bytes) {
    body(bytes.begin * kMaskBits, std::min(count, bytes.end * kMaskBits));
  });
}

/// Sets the bytes of a mask: is_pruned(i) for each element.
template <typename IsPruned>
void set_mask(int64_t count, uint8_t* mask, ThreadPool& threads, IsPruned is_pruned) {
  for_mask_bytes(count, threads, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i += kMaskBits) {
      int byte = 0;
      for (int64_t k = i; k < std::min(end, i + kMaskBits); ++k) byte |= is_pruned(k) ? 1 << (k - i) : 0;
      mask[i / kMaskBits] = static_cast<uint8_t>(byte);
    }
  });
}

std::vector<float> floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }
std::vector<uint8_t> bytes(const std::vector<double>& values) { return {values.begin(), values.end()}; }

template <typename IsPruned>
void set_reference_mask(std::vector<double>& mask, size_t count, IsPruned is_pruned) {
  std::ranges::fill(mask, 0);
  for (size_t i = 0; i < count; ++i)
    if (is_pruned(static_cast<int64_t>(i))) mask[i / kMaskBits] += 1 << (i % kMaskBits);
}

// mask_gradient, apply_mask

Inferred infer_masked(const NodeView& node) {
  if (!is_storage_float(node.in_type(0).dtype)) return refuse_type("x", "floating", node.in_type(0));
  if (auto error = check_mask(node.in_type(0), node.in_type(1)); !error.empty()) return refuse(error);
  return same_as_first(node);
}

template <typename T>
void copy_masked(const KernelArgs& args, int64_t count) {
  const auto* mask = args.input<uint8_t>(1);
  for_mask_bytes(count, *args.threads, [&](int64_t first, int64_t end) {
    const T* x = args.input<T>(0);
    T* y = args.output<T>(0);
    for (int64_t i = first; i < end; ++i) y[i] = is_pruned(mask, i) ? T{} : x[i];
  });
}

Kernel masked_cpu(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  if (node.in_type(0).dtype == DType::f32)
    return {.run = [count](const KernelArgs& args) { copy_masked<float>(args, count); }};
  return {.run = [count](const KernelArgs& args) { copy_masked<uint16_t>(args, count); }};
}

void masked_reference(const ReferenceArgs& args) {
  const std::vector<uint8_t> mask = bytes(args.in[1]);
  for (size_t i = 0; i < args.in[0].size(); ++i)
    args.out[0][i] = is_pruned(mask.data(), static_cast<int64_t>(i)) ? 0 : args.in[0][i];
}

SampleInput mask_input(int64_t count) { return indices({num_mask_bytes(count)}, 256, DType::u8); }

std::vector<Sample> masked_samples() {
  return {{.in = {normal({5, 3}), mask_input(15)}},
          {.in = {normal({4, 2049}), mask_input(4 * 2049)}},
          {.in = {normal({9000}), mask_input(9000)}}};
}
std::vector<Sample> mask_gradient_samples() {
  std::vector<Sample> samples = masked_samples();
  samples.push_back({.in = {normal({6, 11}, DType::bf16), mask_input(66)}});
  samples.push_back({.in = {normal({6, 11}, DType::f16), mask_input(66)}});
  return samples;
}

// prune_score

Inferred infer_score(const NodeView& node) {
  if (auto error = check_same_shape(node, prune_score, {1}); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, prune_score, 2, 2); !error.empty()) return refuse(error);
  if (node.has_input(3) && node.in_type(3) != node.in_type(0))
    return refuse_type("the weight", to_string(node.in_type(0)), node.in_type(3));
  return {.out = {node.in_type(0)}, .error = ""};
}

Kernel score_cpu(const NodeView& node) {
  return {.run = [type = node.in_type(1), has_weight = node.has_input(3)](const KernelArgs& args) {
    const float factor = *args.input<float>(2);
    if (factor < 0) return;
    for_gradient_runs(type, args, [&](const float* gradient, int64_t first, int64_t count) {
      float* score = args.output<float>(0) + first;
      const float* weight = has_weight ? args.input<float>(3) + first : nullptr;
      for (int64_t i = 0; i < count; ++i) {
        const float g = factor * gradient[i];
        score[i] = weight == nullptr ? g : score[i] - g * weight[i];
      }
    });
  }};
}

void score_reference(const ReferenceArgs& args) {
  const double factor = args.in[2][0];
  for (size_t i = 0; i < args.in[0].size(); ++i) {
    const double gradient = factor * args.in[1][i];
    args.out[0][i] = factor < 0            ? args.in[0][i]
                     : args.in.size() == 3 ? gradient
                                           : args.in[0][i] - gradient * args.in[3][i];
  }
}

std::vector<Sample> score_samples() {
  return {{.in = {normal({5, 3}), normal({5, 3}), one()}},
          {.in = {normal({5000}), normal({5000}, DType::bf16), positive({}), normal({5000})}},
          {.in = {normal({70}), normal({70}), filled(SampleInput::Fill::normal, {}), normal({70})}}};
}

// prune_threshold, prune_mask

int64_t num_scores(const NodeView& node) {
  int64_t count = 0;
  for (size_t i = 1; i < node.in.size(); ++i) count += node.in_type(i).shape.num_elements();
  return count;
}

Inferred infer_threshold(const NodeView& node) {
  if (auto error = check_scalars(node, prune_threshold, 0, 0); !error.empty()) return refuse(error);
  for (size_t i = 1; i < node.in.size(); ++i)
    if (node.in_type(i).dtype != DType::f32) return refuse_type("scores", "f32", node.in_type(i));
  if (num_scores(node) > kMaxElements)
    return refuse(
        fmt::format("{} weights cannot be compared with each other (at most 2^32); set "
                    "prune.scope=layer",
                    num_scores(node)));
  return {.out = {kThreshold}, .error = ""};
}

/// Adds the histogram of the digits of one tensor's keys to `histogram`, in parallel. `first`: index of the
/// tensor's first element.
void count_digits(std::span<const float> scores, int64_t first, bool by_value, uint64_t prefix, int shift,
                  ThreadPool& threads, std::atomic<int64_t>* histogram) {
  threads.parallel_for(std::ssize(scores), 1 << 14, [&](Range range) {
    int64_t counts[kKeyDigits] = {};
    for (int64_t i = range.begin; i < range.end; ++i) {
      const uint64_t key =
          prune_key(scores[static_cast<size_t>(i)], by_value, static_cast<uint32_t>(first + i));
      if (has_prefix(key, prefix, shift + 8)) ++counts[key >> shift & (kKeyDigits - 1)];
    }
    for (size_t digit = 0; digit < kKeyDigits; ++digit) histogram[digit] += counts[digit];
  });
}

Kernel threshold_cpu(const NodeView& node) {
  std::vector<int64_t> counts;
  for (size_t i = 1; i < node.in.size(); ++i) counts.push_back(node.in_type(i).shape.num_elements());
  const auto run = [counts, total = num_scores(node),
                    by_value = sorts_by_value(node)](const KernelArgs& args) {
    const auto count = [&](uint64_t prefix, int shift, int64_t* histogram) {
      std::atomic<int64_t> sums[kKeyDigits] = {};
      int64_t first = 0;
      for (size_t i = 0; i < counts.size(); first += counts[i++])
        count_digits({args.input<float>(i + 1), static_cast<size_t>(counts[i])}, first, by_value, prefix,
                     shift, *args.threads, sums);
      std::ranges::copy(sums, histogram);
    };
    const int64_t pruned = num_pruned(static_cast<double>(*args.input<float>(0)), total);
    const uint64_t key = pruned == total ? kMaxKey : key_of_rank(pruned, count);
    args.output<int32_t>(0)[0] = static_cast<int32_t>(key >> 32);
    args.output<int32_t>(0)[1] = static_cast<int32_t>(key);
  };
  return {.run = run};
}

/// Sorts all keys.
void threshold_reference(const ReferenceArgs& args) {
  std::vector<uint64_t> keys = {kMaxKey};
  for (size_t i = 1; i < args.in.size(); ++i) {
    for (const double score : args.in[i])
      keys.push_back(prune_key(static_cast<float>(score), sorts_by_value(args.node),
                               static_cast<uint32_t>(keys.size() - 1)));
  }
  std::ranges::sort(keys);
  const auto sparsity = static_cast<double>(static_cast<float>(args.in[0][0]));
  const uint64_t key = keys[static_cast<size_t>(num_pruned(sparsity, std::ssize(keys) - 1))];
  args.out[0] = {static_cast<double>(static_cast<int32_t>(key >> 32)),
                 static_cast<double>(static_cast<int32_t>(key))};
}

std::vector<Sample> threshold_samples() {
  const SampleInput sparsity = filled(SampleInput::Fill::unit, {}),
                    zeros = filled(SampleInput::Fill::zero, {70});
  const ir::Attrs by_value{{"by_value", int64_t{1}}};
  return {{.in = {sparsity, normal({5, 3})}, .tolerance = 0},
          {.in = {sparsity, normal({30, 1000})}, .tolerance = 0},
          {.in = {sparsity, zeros, normal({41}), zeros}, .tolerance = 0},
          {.in = {sparsity, normal({3, 700}), normal({50000})}, .attrs = by_value, .tolerance = 0},
          {.in = {filled(SampleInput::Fill::zero, {}), normal({33})}, .tolerance = 0},
          {.in = {one(), normal({33})}, .tolerance = 0}};
}

Inferred infer_mask(const NodeView& node) {
  if (node.in_type(1).dtype != DType::f32) return refuse_type("score", "f32", node.in_type(1));
  if (auto error = check_mask(node.in_type(1), node.in_type(0)); !error.empty()) return refuse(error);
  if (node.in_type(2) != kThreshold) return refuse_type("threshold", to_string(kThreshold), node.in_type(2));
  return same_as_first(node);
}

Kernel mask_cpu(const NodeView& node) {
  const int64_t count = node.in_type(1).shape.num_elements();
  return {.run = [count, first = node.attrs.integer("first"),
                  by_value = sorts_by_value(node)](const KernelArgs& args) {
    const uint64_t kept = key_of_halves(args.input<int32_t>(2));
    const auto* score = args.input<float>(1);
    set_mask(count, args.output<uint8_t>(0), *args.threads, [&](int64_t i) {
      return prune_key(score[i], by_value, static_cast<uint32_t>(first + i)) < kept;
    });
  }};
}

void mask_reference(const ReferenceArgs& args) {
  const std::vector<float> score = floats(args.in[1]);
  const int32_t halves[] = {static_cast<int32_t>(args.in[2][0]), static_cast<int32_t>(args.in[2][1])};
  const int64_t first = args.node.attrs.integer("first");
  set_reference_mask(args.out[0], score.size(), [&](int64_t i) {
    const auto number = static_cast<uint32_t>(first + i);
    return prune_key(score[static_cast<size_t>(i)], sorts_by_value(args.node), number) <
           key_of_halves(halves);
  });
}

std::vector<Sample> mask_samples() {
  const SampleInput threshold = indices({2}, 0x40800000, DType::i32);
  const auto sample = [&](const Shape& shape, int64_t by_value) {
    return Sample{.in = {mask_input(shape.num_elements()), normal(shape), threshold},
                  .attrs = {{"first", int64_t{100}}, {"by_value", by_value}},
                  .tolerance = 0};
  };
  return {sample({5, 3}, 0), sample({3, 4001}, 0), sample({64, 64}, 1), sample({1025}, 0)};
}

// prune_groups

Inferred infer_groups(const NodeView& node) {
  const Type& score = node.in_type(1);
  if (score.dtype != DType::f32) return refuse_type("score", "f32", score);
  if (auto error = check_mask(score, node.in_type(0)); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, prune_groups, 2, 2); !error.empty()) return refuse(error);
  const int64_t elements = node.attrs.integer("group") * node.attrs.integer("stride");
  if (score.shape.num_elements() % elements != 0)
    return refuse(fmt::format("groups of {} elements do not divide {}", elements, to_string(score)));
  return same_as_first(node);
}

Kernel groups_cpu(const NodeView& node) {
  const int64_t count = node.in_type(1).shape.num_elements();
  return {.run = [count, group = node.attrs.integer("group"), stride = node.attrs.integer("stride"),
                  by_value = sorts_by_value(node)](const KernelArgs& args) {
    const int64_t pruned = num_pruned(static_cast<double>(*args.input<float>(2)), group);
    set_mask(count, args.output<uint8_t>(0), *args.threads, [&](int64_t i) {
      return is_pruned_in_group(args.input<float>(1), by_value, i, group, stride, pruned);
    });
  }};
}

/// Sorts each group.
void groups_reference(const ReferenceArgs& args) {
  const std::vector<float> score = floats(args.in[1]);
  const auto group = static_cast<size_t>(args.node.attrs.integer("group"));
  const auto stride = static_cast<size_t>(args.node.attrs.integer("stride"));
  const auto pruned = static_cast<size_t>(num_pruned(args.in[2][0], static_cast<int64_t>(group)));
  std::vector<bool> is_pruned(score.size());
  for (size_t first = 0; first < score.size(); ++first) {
    if (first / stride % group != 0) continue;
    std::vector<size_t> order(group);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t k) {
      return prune_key(score[first + k * stride], sorts_by_value(args.node), 0);
    });
    for (size_t k = 0; k < pruned; ++k) is_pruned[first + order[k] * stride] = true;
  }
  set_reference_mask(args.out[0], score.size(), [&](int64_t i) { return is_pruned[static_cast<size_t>(i)]; });
}

std::vector<Sample> groups_samples() {
  const auto sample = [&](const SampleInput& score, int64_t group, int64_t stride) {
    return Sample{
        .in = {mask_input(score.type.shape.num_elements()), score, filled(SampleInput::Fill::unit, {})},
        .attrs = {{"group", group}, {"stride", stride}},
        .tolerance = 0};
  };
  return {sample(normal({5, 12}), 4, 1), sample(normal({3, 3, 8, 5}), 4, 5), sample(normal({64, 256}), 8, 1),
          sample(filled(SampleInput::Fill::zero, {3, 8}), 8, 1)};
}

// grow_score

Inferred infer_grow(const NodeView& node) {
  if (node.in_type(0).dtype != DType::f32) return refuse_type("score", "f32", node.in_type(0));
  if (auto error = check_mask(node.in_type(0), node.in_type(1)); !error.empty()) return refuse(error);
  return same_as_first(node);
}

Kernel grow_cpu(const NodeView& node) {
  return {.run = [count = node.in_type(0).shape.num_elements()](const KernelArgs& args) {
    const auto* mask = args.input<uint8_t>(1);
    for_mask_bytes(count, *args.threads, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i)
        args.output<float>(0)[i] = grow_score_of(args.input<float>(0)[i], is_pruned(mask, i));
    });
  }};
}

void grow_reference(const ReferenceArgs& args) {
  const std::vector<uint8_t> mask = bytes(args.in[1]);
  for (size_t i = 0; i < args.in[0].size(); ++i)
    args.out[0][i] =
        is_pruned(mask.data(), static_cast<int64_t>(i)) ? std::abs(args.in[0][i]) : kMaxGrowScore;
}

}  // namespace

const OpDef mask_gradient{.name = "mask_gradient",
                          .doc = "mask_gradient(x, mask): x with zeros at pruned elements",
                          .inputs = {"x", "mask"},
                          .infer = infer_masked,
                          .no_vjp_because = kUpdateHasNoGradient,
                          .cpu = masked_cpu,
                          .gpu = true,
                          .gpu_many = true,
                          .reference = masked_reference,
                          .may_work_in_place = true,
                          .samples = mask_gradient_samples};

const OpDef apply_mask{.name = "apply_mask",
                       .doc = "apply_mask(x f32, mask): x' = 0 at pruned elements, in place",
                       .inputs = {"x", "mask"},
                       .infer = infer_masked,
                       .no_vjp_because = kUpdateHasNoGradient,
                       .cpu = masked_cpu,
                       .gpu = true,
                       .gpu_many = true,
                       .reference = masked_reference,
                       .precision = ir::Precision::full,
                       .writes = {0},
                       .samples = masked_samples};

const OpDef prune_score{
    .name = "prune_score",
    .doc =
        "prune_score(score f32, grad, factor, weight?): score' = score - factor grad weight (movement "
        "pruning), without weight factor grad, in place",
    .inputs = {"score", "grad", "factor", "weight?"},
    .infer = infer_score,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = score_cpu,
    .gpu = true,
    .gpu_many = true,
    .reference = score_reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 3); },
    .precision = ir::Precision::full,
    .writes = {0},
    .samples = score_samples};

const OpDef prune_threshold{
    .name = "prune_threshold",
    .doc =
        "prune_threshold(sparsity, scores+){by_value}: key of the smallest score that is kept, of all scores "
        "together, by magnitude or by value; i32[2], upper and lower half",
    .inputs = {"sparsity", "scores+"},
    .infer = infer_threshold,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = threshold_cpu,
    .gpu = true,
    .reference = threshold_reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 64); },
    .precision = ir::Precision::full,
    .samples = threshold_samples};

const OpDef prune_mask{
    .name = "prune_mask",
    .doc =
        "prune_mask(mask, score f32, threshold i32[2]){first, by_value}: mask' of the scores whose keys are "
        "below the threshold, in place; first: index of element 0 among the scores of prune_threshold",
    .inputs = {"mask", "score", "threshold"},
    .infer = infer_mask,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = mask_cpu,
    .gpu = true,
    .reference = mask_reference,
    .precision = ir::Precision::full,
    .writes = {0},
    .samples = mask_samples};

const OpDef prune_groups{
    .name = "prune_groups",
    .doc =
        "prune_groups(mask, score f32, sparsity){group, stride, by_value}: mask' of the smallest scores of "
        "each group of `group` elements that are `stride` apart, in place",
    .inputs = {"mask", "score", "sparsity"},
    .infer = infer_groups,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = groups_cpu,
    .gpu = true,
    .reference = groups_reference,
    .precision = ir::Precision::full,
    .writes = {0},
    .samples = groups_samples};

const OpDef grow_score{
    .name = "grow_score",
    .doc = "grow_score(score f32, mask): |score| of pruned elements, a maximum for the others",
    .inputs = {"score", "mask"},
    .infer = infer_grow,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = grow_cpu,
    .gpu = true,
    .reference = grow_reference,
    .precision = ir::Precision::full,
    .may_work_in_place = true,
    .samples = [] {
      return std::vector<Sample>{{.in = {normal({5, 3}), mask_input(15)}},
                                 {.in = {normal({9001}), mask_input(9001)}}};
    }};

}  // namespace hearth::ops
