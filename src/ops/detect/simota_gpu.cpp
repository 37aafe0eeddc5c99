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
  double* no_class;    ///< [anchors], for candidates; NaN for other anchors
  int32_t* matches;    ///< [targets, Ranking::kMost]: anchor indices, or -1
};
int64_t scratch_bytes(const SimOta& rule) {
  const int64_t bytes = int64_t{rule.anchors} * static_cast<int64_t>(sizeof(Corners) + sizeof(double)) +
                        int64_t{rule.targets} * Ranking::kMost * 4;
  return divided_up(bytes, 64) * 64;
}
RT_DEVICE Scratch scratch_at(const SimOta& rule, std::byte* from) {
  Scratch made;
  made.predicted = reinterpret_cast<Corners*>(from);
  made.no_class = reinterpret_cast<double*>(made.predicted + rule.anchors);
  made.matches = reinterpret_cast<int32_t*>(made.no_class + rule.anchors);
  return made;
}

/// Outputs of one image.
struct Outputs {
  int32_t* labels;
  float* assigned;
  float* boxes;
  float* ious;

  RT_DEVICE Outputs of_picture(int64_t first) const {
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

/// Removes the best entry of all lanes' rankings and returns it in every lane.
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

/// Finds the anchors that match a target; one warp.
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
  for (int i = 0; i < Ranking::kMost; ++i) {
    if (take_first(ious, value) >= 0) sum -= value;
  }
  const int count = SimOta::num_matches(sum);
  for (int i = 0; i < Ranking::kMost; ++i) {
    const int anchor = take_first(costs, value);
    if (rt::lane() == 0) matches[i] = i < count ? anchor : -1;
  }
}

/// Returns the target for the anchor of match `own`; -1 if an earlier match has the same anchor. An anchor
/// with several matches learns the target with the lowest cost.
RT_DEVICE int target_of(const SimOta& rule, const float* raw, const float* targets, const Scratch& scratch,
                        int own) {
  const int anchor = scratch.matches[own];
  bool alone = true;
  for (int other = 0; other < rule.targets * Ranking::kMost; ++other) {
    if (other == own || scratch.matches[other] != anchor) continue;
    if (other < own) return -1;
    alone = false;
  }
  int best = own / Ranking::kMost;
  if (alone) return best;
  double least = HUGE_VAL;
  for (int t = 0; t < rule.targets; ++t) {
    const Target target = rule.target(targets, t);
    if (target.label < 0) continue;
    const double iou = scratch.predicted[anchor].iou(target.corners());
    const double cost = rule.cost(raw, anchor, scratch.no_class[anchor], target, iou);
    if (!(cost < least)) continue;
    least = cost;
    best = t;
  }
  return best;
}

/// Arguments of the three kernels; each image has a row of blocks.
struct Arrays {
  const float *raw, *targets;
  Outputs out;
  std::byte* workspace;
  int64_t bytes;  ///< workspace bytes per image

  RT_DEVICE Arrays of_picture(const SimOta& rule, int64_t picture) const {
    return {raw + picture * rule.anchors * (5 + rule.classes), targets + picture * rule.targets * 5,
            out.of_picture(picture * rule.anchors), workspace + picture * bytes, bytes};
  }
};

/// Finds the anchors that may match any target.
__global__ void __launch_bounds__(kBlockThreads) find_candidates(Arrays all, SimOta rule) {
  const Arrays own = all.of_picture(rule, static_cast<int64_t>(blockIdx.x));
  const Scratch scratch = scratch_at(rule, own.workspace);
  const int first = static_cast<int>(blockIdx.y) * kBlockThreads + static_cast<int>(threadIdx.x);
  for (int a = first; a < rule.anchors; a += static_cast<int>(gridDim.y) * kBlockThreads) {
    own.out.clear(a);
    scratch.no_class[a] = NAN;
    if (!rule.is_candidate(own.targets, a)) continue;
    scratch.predicted[a] = rule.predicted(own.raw, a);
    scratch.no_class[a] = rule.cost_of_no_class(own.raw, a);
  }
}

/// Finds the anchors that match each target.
__global__ void __launch_bounds__(kBlockThreads) find_matches(Arrays all, SimOta rule) {
  const Arrays own = all.of_picture(rule, static_cast<int64_t>(blockIdx.x));
  const Scratch scratch = scratch_at(rule, own.workspace);
  const int first = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / rt::kWarp;
  for (int t = first; t < rule.targets; t += static_cast<int>(gridDim.y) * kWarps)
    match(rule, own.raw, rule.target(own.targets, t), scratch, scratch.matches + t * Ranking::kMost);
}

/// Writes the assignment of each matched anchor.
__global__ void __launch_bounds__(kBlockThreads) assign(Arrays all, SimOta rule) {
  const Arrays arrays = all.of_picture(rule, static_cast<int64_t>(blockIdx.x));
  const Scratch scratch = scratch_at(rule, arrays.workspace);
  for (int own = static_cast<int>(threadIdx.x); own < rule.targets * Ranking::kMost; own += kBlockThreads) {
    const int anchor = scratch.matches[own];
    const int best = anchor < 0 ? -1 : target_of(rule, arrays.raw, arrays.targets, scratch, own);
    if (best < 0) continue;
    const Target target = rule.target(arrays.targets, best);
    arrays.out.put(rule, anchor, target, scratch.predicted[anchor].iou(target.corners()));
  }
}

/// Returns a launch shape with one row of blocks per image, each block processing `of_block` of its `count`
/// parts.
rt::Shape shared(int64_t pictures, int64_t count, int64_t of_block) {
  constexpr int64_t kMost = 256;
  rt::Shape shape{pictures, kBlockThreads};
  shape.blocks.y = static_cast<unsigned>(std::min(kMost, divided_up(count, of_block)));
  return shape;
}

ir::Kernel simota_gpu(const NodeView& node) {
  const SimOta rule = SimOta::of(node);
  const int64_t bytes = scratch_bytes(rule), pictures = node.in_type(0).shape[0];
  const auto run = [=](const KernelArgs& args) {
    const Outputs out{output_of<int32_t>(args, SimOtaOut::label), output_of<float>(args, SimOtaOut::assigned),
                      output_of<float>(args, SimOtaOut::box), output_of<float>(args, SimOtaOut::iou)};
    const Arrays all{input_of<float>(args, SimOtaIn::raw), input_of<float>(args, SimOtaIn::targets), out,
                     args.workspace, bytes};
    rt::launch(find_candidates, shared(pictures, rule.anchors, kBlockThreads), args.stream->handle(), all,
               rule);
    rt::launch(find_matches, shared(pictures, rule.targets, kWarps), args.stream->handle(), all, rule);
    rt::launch(assign, {pictures, kBlockThreads}, args.stream->handle(), all, rule);
  };
  return {.run = run, .workspace_bytes = pictures * bytes};
}

const GpuKernels kKernels = {{.op = "simota", .one = simota_gpu}};

}  // namespace
}  // namespace hearth::ops
