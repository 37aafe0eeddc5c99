#include "ops/detect/detect.h"
#include "ops/detect/simota_rules.h"
#include "ops/gpu_support.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int kWarps = kBlockThreads / rt::kWarp;

/// Workspace of one image.
struct Scratch {
  Corners* predicted;  ///< [anchors]
  double* no_class;    ///< [anchors]: cost_of_no_class() of candidates, NaN for other anchors
  int32_t*
      matches;  ///< [targets, Ranking::kMaxCount]: indices of the anchors that each target selects, or -1
};
int64_t scratch_bytes(const SimOta& rule) {
  const int64_t bytes = int64_t{rule.anchors} * static_cast<int64_t>(sizeof(Corners) + sizeof(double)) +
                        int64_t{rule.targets} * Ranking::kMaxCount * 4;
  return ceil_div(bytes, 64) * 64;
}
RT_DEVICE Scratch scratch_at(const SimOta& rule, std::byte* from) {
  Scratch result;
  result.predicted = reinterpret_cast<Corners*>(from);
  result.no_class = reinterpret_cast<double*>(result.predicted + rule.anchors);
  result.matches = reinterpret_cast<int32_t*>(result.no_class + rule.anchors);
  return result;
}

/// Outputs of one image.
struct Outputs {
  int32_t* labels;
  float* assigned;
  float* boxes;
  float* ious;

  RT_DEVICE Outputs of_image(int64_t first) const {
    return {labels + first, assigned + first, boxes + first * 4, ious + first};
  }
  RT_DEVICE void clear(int anchor) const {
    labels[anchor] = -1;
    assigned[anchor] = 0;
    for (int i = 0; i < 4; ++i) boxes[int64_t{anchor} * 4 + i] = 0;
    ious[anchor] = 0;
  }
  RT_DEVICE void put(const SimOta& rule, int anchor, const Target& target, double iou) const {
    labels[anchor] = target.label;
    assigned[anchor] = 1;
    for (int i = 0; i < 4; ++i) boxes[int64_t{anchor} * 4 + i] = rule.side(anchor, target, i);
    ious[anchor] = static_cast<float>(iou);
  }
};

RT_DEVICE bool is_candidate(double no_class) { return no_class == no_class; }

/// Removes the best entry of the rankings of all lanes of a warp. Returns its number, and its value in
/// `value`, in every lane; -1 if all rankings are empty.
RT_DEVICE int take_first(Ranking& ranking, double& value) {
  value = ranking.values[0];
  int number = ranking.numbers[0];
  for (int mask = rt::kWarp / 2; mask > 0; mask /= 2) {
    const double other = rt::shuffle_xor(value, mask);
    const int other_number = rt::shuffle_xor(number, mask);
    if (other_number >= 0 && (number < 0 || Ranking::before(other, other_number, value, number))) {
      value = other;
      number = other_number;
    }
  }
  if (number >= 0 && ranking.numbers[0] == number) ranking.drop_first();
  return number;
}

/// Writes the anchors that a target selects to `matches`; one warp per target.
RT_DEVICE void match(const SimOta& rule, const float* raw, const Target& target, const Scratch& scratch,
                     int32_t* matches) {
  Ranking ious, costs;
  ious.clear();
  costs.clear();
  if (target.label >= 0) {
    const Corners wanted = target.corners();
    for (int a = rt::lane(); a < rule.anchors; a += rt::kWarp) {
      if (!is_candidate(scratch.no_class[a])) continue;
      const double iou = scratch.predicted[a].iou(wanted);
      ious.add(-iou, a);
      costs.add(rule.cost(raw, a, scratch.no_class[a], target, iou), a);
    }
  }
  double sum = 0, value = 0;
  for (int i = 0; i < Ranking::kMaxCount; ++i) {
    if (take_first(ious, value) >= 0) sum -= value;
  }
  const int count = SimOta::num_matches(sum);
  for (int i = 0; i < Ranking::kMaxCount; ++i) {
    const int anchor = take_first(costs, value);
    if (rt::lane() == 0) matches[i] = i < count ? anchor : -1;
  }
}

/// Returns the target that is assigned to the anchor in matches[local]; -1 if an earlier element of `matches`
/// has the same anchor. An anchor that several targets selected gets the target with the lowest cost.
RT_DEVICE int target_of(const SimOta& rule, const float* raw, const float* targets, const Scratch& scratch,
                        int local) {
  const int anchor = scratch.matches[local];
  bool alone = true;
  for (int other = 0; other < rule.targets * Ranking::kMaxCount; ++other) {
    if (other == local || scratch.matches[other] != anchor) continue;
    if (other < local) return -1;
    alone = false;
  }
  int best = local / Ranking::kMaxCount;
  if (alone) return best;
  double min_cost = HUGE_VAL;
  for (int t = 0; t < rule.targets; ++t) {
    const Target target = rule.target(targets, t);
    if (target.label < 0) continue;
    const double iou = scratch.predicted[anchor].iou(target.corners());
    const double cost = rule.cost(raw, anchor, scratch.no_class[anchor], target, iou);
    if (!(cost < min_cost)) continue;
    min_cost = cost;
    best = t;
  }
  return best;
}

/// Arguments of the three kernels. blockIdx.x is the image.
struct Arrays {
  const float *raw, *targets;
  Outputs out;
  std::byte* workspace;
  int64_t bytes;  ///< workspace bytes per image

  RT_DEVICE Arrays of_image(const SimOta& rule, int64_t image) const {
    return {raw + image * rule.anchors * (5 + rule.classes), targets + image * rule.targets * 5,
            out.of_image(image * rule.anchors), workspace + image * bytes, bytes};
  }
};

/// Clears the outputs, and computes predicted boxes and no_class of the anchors that are candidates.
__global__ void __launch_bounds__(kBlockThreads) find_candidates(Arrays all, SimOta rule) {
  const Arrays local = all.of_image(rule, static_cast<int64_t>(blockIdx.x));
  const Scratch scratch = scratch_at(rule, local.workspace);
  const int first = static_cast<int>(blockIdx.y) * kBlockThreads + static_cast<int>(threadIdx.x);
  for (int a = first; a < rule.anchors; a += static_cast<int>(gridDim.y) * kBlockThreads) {
    local.out.clear(a);
    scratch.no_class[a] = NAN;
    if (!rule.is_candidate(local.targets, a)) continue;
    scratch.predicted[a] = rule.predicted(local.raw, a);
    scratch.no_class[a] = rule.cost_of_no_class(local.raw, a);
  }
}

/// Writes the anchors that each target selects to Scratch::matches.
__global__ void __launch_bounds__(kBlockThreads) find_matches(Arrays all, SimOta rule) {
  const Arrays local = all.of_image(rule, static_cast<int64_t>(blockIdx.x));
  const Scratch scratch = scratch_at(rule, local.workspace);
  const int first = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / rt::kWarp;
  for (int t = first; t < rule.targets; t += static_cast<int>(gridDim.y) * kWarps)
    match(rule, local.raw, rule.target(local.targets, t), scratch, scratch.matches + t * Ranking::kMaxCount);
}

/// Writes the outputs of each selected anchor.
__global__ void __launch_bounds__(kBlockThreads) assign(Arrays all, SimOta rule) {
  const Arrays arrays = all.of_image(rule, static_cast<int64_t>(blockIdx.x));
  const Scratch scratch = scratch_at(rule, arrays.workspace);
  for (int local = static_cast<int>(threadIdx.x); local < rule.targets * Ranking::kMaxCount;
       local += kBlockThreads) {
    const int anchor = scratch.matches[local];
    const int best = anchor < 0 ? -1 : target_of(rule, arrays.raw, arrays.targets, scratch, local);
    if (best < 0) continue;
    const Target target = rule.target(arrays.targets, best);
    arrays.out.put(rule, anchor, target, scratch.predicted[anchor].iou(target.corners()));
  }
}

/// Returns a launch shape with enough blocks per image (gridDim.y, at most 256) for `count` items, if a block
/// processes `of_block` items at a time.
rt::Shape shared(int64_t images, int64_t count, int64_t of_block) {
  constexpr int64_t kMaxCount = 256;
  rt::Shape shape{images, kBlockThreads};
  shape.blocks.y = static_cast<unsigned>(std::min(kMaxCount, ceil_div(count, of_block)));
  return shape;
}

ir::Kernel simota_gpu(const NodeView& node) {
  const SimOta rule = SimOta::of(node);
  const int64_t bytes = scratch_bytes(rule), images = node.in_type(0).shape[0];
  const auto run = [=](const KernelArgs& args) {
    const Outputs out{output_of<int32_t>(args, SimOtaOut::label), output_of<float>(args, SimOtaOut::assigned),
                      output_of<float>(args, SimOtaOut::box), output_of<float>(args, SimOtaOut::iou)};
    const Arrays all{input_of<float>(args, SimOtaIn::raw), input_of<float>(args, SimOtaIn::targets), out,
                     args.workspace, bytes};
    rt::launch(find_candidates, shared(images, rule.anchors, kBlockThreads), args.stream->handle(), all,
               rule);
    rt::launch(find_matches, shared(images, rule.targets, kWarps), args.stream->handle(), all, rule);
    rt::launch(assign, {images, kBlockThreads}, args.stream->handle(), all, rule);
  };
  return {.run = run, .workspace_bytes = images * bytes};
}

const GpuKernels kKernels = {{.op = "simota", .one = simota_gpu}};

}  // namespace
}  // namespace hearth::ops
