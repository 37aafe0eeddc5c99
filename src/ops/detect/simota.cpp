// SimOTA label assignment (Ge et al. 2021, arXiv 2107.08430). Candidates are the anchors whose cell center is
// inside of a target box or near a box's center. Each target selects the k candidates with the lowest cost,
// where k is the integer part of the sum of its ten largest IoUs (dynamic k), at least 1. The cost is
// classification loss + IoU loss, plus a penalty if the anchor is not both inside of this box and near its
// center. An anchor that several targets select is assigned to the target with the lowest cost.
#include <array>
#include <cmath>

#include "backend/cpu/rows.h"
#include "ops/detect/anchor_grid.h"
#include "ops/detect/detect.h"
#include "ops/detect/simota_rules.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

std::string check(const NodeView& node) {
  const Type &raw = node.in_type(SimOtaIn::raw), &targets = node.in_type(SimOtaIn::targets);
  if (auto error = check_anchor_grid(node); !error.empty()) return error;
  if (targets.dtype != DType::f32 || targets.shape.rank() != 3 || targets.shape[0] != raw.shape[0] ||
      targets.shape[1] < 1 || targets.shape[2] != 5)
    return fmt::format("expected targets f32[{}, M, 5], got {}", raw.shape[0], to_string(targets));
  if (targets.shape[1] <= INT32_MAX / (5 * Ranking::kMaxCount)) return "";
  return fmt::format("too many targets per image: {}", to_string(targets));
}
Inferred infer(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Shape anchors{node.in_type(0).shape[0], node.in_type(0).shape[1]};
  return {.out = {{.dtype = DType::i32, .shape = anchors},
                  f32_type(anchors),
                  f32_type({anchors[0], anchors[1], 4}),
                  f32_type(anchors)},
          .error = ""};
}

/// Workspace of one image: arrays with an element per candidate anchor.
struct Scratch {
  Corners* predicted;
  double* no_class;
  int32_t* anchors;
  int32_t* matched;  ///< index of the target that selected the candidate, or a value below
  static constexpr int kUnmatched = -1, kSeveral = -2;

  static int64_t num_bytes(const SimOta& rule) {
    return cpu::round_up(rule.anchors * static_cast<int64_t>(sizeof(Corners) + sizeof(double) + 8), 64);
  }
  Scratch(const SimOta& rule, std::byte* from)
      : predicted(reinterpret_cast<Corners*>(from)),
        no_class(reinterpret_cast<double*>(predicted + rule.anchors)),
        anchors(reinterpret_cast<int32_t*>(no_class + rule.anchors)),
        matched(anchors + rule.anchors) {}
};

/// Assigns targets to the anchors of one image: call find_candidates(), match() and assign() in this order.
class ImageAssigner {
 public:
  ImageAssigner(const SimOta& rule, const float* raw, const float* targets, std::byte* workspace)
      : rule_(rule), raw_(raw), targets_(targets), scratch_(rule, workspace) {}

  void find_candidates() {
    for (int a = 0; a < rule_.anchors; ++a) {
      if (!rule_.is_candidate(targets_, a)) continue;
      const double no_class = rule_.cost_of_no_class(raw_, a);
      if (std::isnan(no_class)) continue;
      scratch_.predicted[count_] = rule_.predicted(raw_, a);
      scratch_.no_class[count_] = no_class;
      scratch_.anchors[count_] = a;
      scratch_.matched[count_++] = Scratch::kUnmatched;
    }
  }

  void match() {
    for (int t = 0; t < rule_.targets; ++t) {
      const Target target = rule_.target(targets_, t);
      if (target.label >= 0) match(t, target);
    }
  }

  /// Calls put(anchor, target, IoU) for each anchor that has a target.
  template <typename Put>
  void assign(Put put) const {
    for (int i = 0; i < count_; ++i) {
      if (scratch_.matched[i] == Scratch::kUnmatched) continue;
      const int t = scratch_.matched[i] == Scratch::kSeveral ? cheapest_target(i) : scratch_.matched[i];
      const Target target = rule_.target(targets_, t);
      put(scratch_.anchors[i], target, iou(i, target));
    }
  }

 private:
  double iou(int i, const Target& target) const { return scratch_.predicted[i].iou(target.corners()); }
  double cost(int i, const Target& target, double iou) const {
    return rule_.cost(raw_, scratch_.anchors[i], scratch_.no_class[i], target, iou);
  }

  void match(int t, const Target& target) {
    Ranking ious, costs;
    ious.clear();
    costs.clear();
    for (int i = 0; i < count_; ++i) {
      const double overlap = iou(i, target);
      ious.add(-overlap, i);
      costs.add(cost(i, target, overlap), i);
    }
    double sum = 0;
    for (int k = 0; k < Ranking::kMaxCount && ious.numbers[k] >= 0; ++k) sum -= ious.values[k];
    const int wanted = SimOta::num_matches(sum);
    for (int k = 0; k < wanted && costs.numbers[k] >= 0; ++k) {
      int32_t& matched = scratch_.matched[costs.numbers[k]];
      matched = matched == Scratch::kUnmatched ? t : Scratch::kSeveral;
    }
  }

  int cheapest_target(int i) const {
    double min_cost = HUGE_VAL;
    int best = 0;
    for (int t = 0; t < rule_.targets; ++t) {
      const Target target = rule_.target(targets_, t);
      if (target.label < 0) continue;
      const double found = cost(i, target, iou(i, target));
      if (!(found < min_cost)) continue;
      min_cost = found;
      best = t;
    }
    return best;
  }

  const SimOta& rule_;
  const float *raw_, *targets_;
  Scratch scratch_;
  int count_ = 0;  ///< number of candidates
};

void run_image(const SimOta& rule, const KernelArgs& args, int64_t image) {
  const int64_t first = image * rule.anchors;
  auto* labels = args.output<int32_t>(SimOtaOut::label) + first;
  auto* assigned = args.output<float>(SimOtaOut::assigned) + first;
  auto* boxes = args.output<float>(SimOtaOut::box) + first * 4;
  auto* ious = args.output<float>(SimOtaOut::iou) + first;
  std::fill_n(labels, rule.anchors, -1);
  std::fill_n(assigned, rule.anchors, 0.0F);
  std::fill_n(boxes, rule.anchors * 4, 0.0F);
  std::fill_n(ious, rule.anchors, 0.0F);
  ImageAssigner work(rule, args.input<float>(SimOtaIn::raw) + first * (5 + rule.classes),
                     args.input<float>(SimOtaIn::targets) + image * rule.targets * 5,
                     args.workspace + image * Scratch::num_bytes(rule));
  work.find_candidates();
  work.match();
  work.assign([&](int anchor, const Target& target, double iou) {
    labels[anchor] = target.label;
    assigned[anchor] = 1;
    for (int i = 0; i < 4; ++i) boxes[int64_t{anchor} * 4 + i] = rule.side(anchor, target, i);
    ious[anchor] = static_cast<float>(iou);
  });
}

Kernel kernel(const NodeView& node) {
  const SimOta rule = SimOta::of(node);
  const int64_t images = node.in_type(0).shape[0];
  const auto run = [=](const KernelArgs& args) {
    args.threads->run_tasks(images, args.threads->size(),
                            [&](int64_t image, int) { run_image(rule, args, image); });
  };
  return {.run = run, .workspace_bytes = images * Scratch::num_bytes(rule)};
}

// Reference implementation: computes IoU and cost of all pairs of an anchor and a target.

struct Pairs {
  size_t anchors, targets;
  std::vector<double> iou, cost;  ///< [targets][anchors]; the cost of a pair that cannot match is infinite
  size_t at(size_t target, size_t anchor) const { return target * anchors + anchor; }
};

/// Returns {center x, center y, stride} of every anchor.
std::vector<std::array<double, 3>> centers_of(const Attrs& attrs) {
  std::vector<std::array<double, 3>> centers;
  for (const int64_t stride : attrs.list("strides")) {
    const auto s = static_cast<double>(stride);
    for (int64_t y = 0; y < attrs.integer("height") / stride; ++y) {
      for (int64_t x = 0; x < attrs.integer("width") / stride; ++x)
        centers.push_back({(static_cast<double>(x) + 0.5) * s, (static_cast<double>(y) + 0.5) * s, s});
    }
  }
  return centers;
}

double iou_of(std::array<double, 4> a, std::array<double, 4> b) {
  double overlap = 1;
  for (size_t i = 0; i < 2; ++i) {
    const double low = std::max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2);
    const double high = std::min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2);
    overlap *= std::max(0.0, high - low);
  }
  return overlap / (a[2] * a[3] + b[2] * b[3] - overlap);
}

double entropy(double score, bool wanted) { return -std::max(std::log(wanted ? score : 1 - score), -100.0); }

Pairs judge(const Attrs& attrs, size_t classes, std::span<const double> raw,
            std::span<const double> targets) {
  const auto centers = centers_of(attrs);
  Pairs pairs{.anchors = centers.size(), .targets = targets.size() / 5, .iou = {}, .cost = {}};
  pairs.iou.resize(pairs.anchors * pairs.targets);
  pairs.cost.assign(pairs.anchors * pairs.targets, HUGE_VAL);
  for (size_t a = 0; a < pairs.anchors; ++a) {
    const auto [x, y, stride] = centers[a];
    const auto local = raw.subspan(a * (5 + classes), 5 + classes);
    const std::array box = {x + (local[0] - 0.5) * stride, y + (local[1] - 0.5) * stride,
                            std::exp(local[2]) * stride, std::exp(local[3]) * stride};
    bool is_candidate = false;
    for (size_t t = 0; t < pairs.targets; ++t) {
      const auto wanted = targets.subspan(t * 5, 5);
      if (wanted[0] < 0 || wanted[0] >= static_cast<double>(classes)) continue;
      const double dx = std::fabs(x - wanted[1]), dy = std::fabs(y - wanted[2]);
      const bool in_box = std::max(dx / wanted[3], dy / wanted[4]) < 0.5;
      const bool near = std::max(dx, dy) < 2.5 * stride;
      is_candidate |= in_box || near;
      double& iou = pairs.iou[pairs.at(t, a)];
      iou = iou_of(box, {wanted[1], wanted[2], wanted[3], wanted[4]});
      double cost = -3 * std::log(iou + 1e-8) + (in_box && near ? 0 : 1e5);
      for (size_t c = 0; c < classes; ++c) {
        const double chance = 1 / (1 + std::exp(-local[5 + c])) / (1 + std::exp(-local[4]));
        cost += entropy(std::sqrt(chance), std::floor(wanted[0]) == static_cast<double>(c));
      }
      pairs.cost[pairs.at(t, a)] = cost;
    }
    for (size_t t = 0; t < pairs.targets && !is_candidate; ++t) {
      pairs.iou[pairs.at(t, a)] = 0;
      pairs.cost[pairs.at(t, a)] = HUGE_VAL;
    }
  }
  return pairs;
}

/// Returns the index of the target of each anchor; -1 for background.
std::vector<int> assignment(const Pairs& pairs) {
  std::vector<int> found(pairs.anchors, -1), times(pairs.anchors, 0);
  for (size_t t = 0; t < pairs.targets; ++t) {
    std::vector<double> ious(&pairs.iou[pairs.at(t, 0)], &pairs.iou[pairs.at(t, 0)] + pairs.anchors);
    std::ranges::sort(ious, std::greater());
    double sum = 0;
    for (size_t i = 0; i < std::min<size_t>(10, ious.size()); ++i) sum += ious[i];
    std::vector<std::pair<double, size_t>> costs;
    for (size_t a = 0; a < pairs.anchors; ++a) {
      if (pairs.cost[pairs.at(t, a)] < HUGE_VAL) costs.emplace_back(pairs.cost[pairs.at(t, a)], a);
    }
    std::ranges::sort(costs);
    costs.resize(std::min(costs.size(), std::max<size_t>(1, static_cast<size_t>(sum))));
    for (const auto& [cost, a] : costs) {
      found[a] = static_cast<int>(t);
      ++times[a];
    }
  }
  for (size_t a = 0; a < pairs.anchors; ++a) {
    if (times[a] < 2) continue;
    std::vector<double> costs;
    for (size_t t = 0; t < pairs.targets; ++t) costs.push_back(pairs.cost[pairs.at(t, a)]);
    found[a] = static_cast<int>(std::ranges::min_element(costs) - costs.begin());
  }
  return found;
}

void reference(const ReferenceArgs& args) {
  const auto images = static_cast<size_t>(args.node.in_type(0).shape[0]);
  const size_t raw_size = args.in[0].size() / images, targets_size = args.in[1].size() / images;
  const auto classes = static_cast<size_t>(args.node.in_type(0).shape[2]) - 5;
  const auto centers = centers_of(args.node.attrs);
  for (size_t n = 0; n < images; ++n) {
    const auto targets = std::span(args.in[1]).subspan(n * targets_size, targets_size);
    const Pairs pairs =
        judge(args.node.attrs, classes, std::span(args.in[0]).subspan(n * raw_size, raw_size), targets);
    const std::vector<int> found = assignment(pairs);
    for (size_t a = 0; a < found.size(); ++a) {
      const size_t at = n * found.size() + a;
      const bool learns = found[a] >= 0;
      const auto t = static_cast<size_t>(std::max(0, found[a]));
      args.out[SimOtaOut::label][at] = learns ? std::floor(targets[t * 5]) : -1;
      args.out[SimOtaOut::assigned][at] = learns ? 1 : 0;
      for (size_t i = 0; i < 4; ++i) {
        const double from = i < 2 ? centers[a][i] - centers[a][2] / 2 : 0;
        args.out[SimOtaOut::box][at * 4 + i] = learns ? (targets[t * 5 + 1 + i] - from) / centers[a][2] : 0;
      }
      args.out[SimOtaOut::iou][at] = learns ? pairs.iou[pairs.at(t, a)] : 0;
    }
  }
}

/// Returns the cost: a few operations for each pair of an anchor and a target, and for each class of each
/// anchor.
Cost cost(const NodeView& node) {
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  const Shape& raw = node.in_type(0).shape;
  const double of_anchor = 10 * count(node.in_type(1).shape[1]) + 20 * count(raw[2]);
  return {
      .flops = count(raw[0] * raw[1]) * of_anchor, .bytes = bytes_moved(node), .kernel = KernelKind::simota};
}

/// Returns a sample with an image of a few pixels, because the test values of targets, in pixels, are in
/// [0.5, 1.5]. They include class 1, which is out of range if there is only one class.
Sample sample(int64_t images, int64_t targets, int64_t classes, std::vector<int64_t> strides, int64_t height,
              int64_t width) {
  int64_t anchors = 0;
  for (const int64_t stride : strides) anchors += height / stride * (width / stride);
  return {.in = {normal({images, anchors, 5 + classes}), positive({images, targets, 5})},
          .attrs = {{"strides", std::move(strides)}, {"height", height}, {"width", width}}};
}
std::vector<Sample> samples() {
  return {sample(2, 3, 3, {1, 2, 4}, 8, 8), sample(3, 2, 1, {1}, 1, 3), sample(1, 20, 7, {1, 2}, 18, 24),
          sample(2, 5, 80, {1, 2, 4}, 8, 12)};
}

}  // namespace

const OpDef simota{.name = "simota",
                   .doc =
                       "simota(raw f32 [N, A, 5 + C], targets f32 [N, M, 5]){strides, height, width}: label "
                       "assignment: class, 1 if assigned, box and IoU of each anchor",
                   .inputs = {"raw", "targets"},
                   .infer = infer,
                   .vjp = [](const VjpContext&) -> std::vector<ValueId> {
                     return {kNone, kNone};
                   },
                   .cpu = kernel,
                   .gpu = true,
                   .reference = reference,
                   .cost = cost,
                   .precision = ir::Precision::full,
                   .samples = samples};

}  // namespace hearth::ops
