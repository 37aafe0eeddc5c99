#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/random/mask.h"
#include "ops/random/random.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  if (node.in[1].dtype != DType::i64 || node.in[1].shape != Shape{2})
    return refuse("expected the counter to be i64[2]");
  const double rate = node.attrs.real("rate");
  if (!(rate >= 0 && rate < 1)) return refuse(fmt::format("expected a rate in [0, 1), got {}", rate));
  return same_as_first(node);
}

/// Computes the factors of 4 * groups elements from element 4 * group on. The loop over Philox counters is
/// vectorized.
HEARTH_CLONES void fill_factors(const MaskKey& key, int64_t group, int64_t groups, float* out) {
  for (int64_t g = 0; g < groups; ++g) mask_factors(key, static_cast<uint64_t>(group + g), out + 4 * g);
}

HEARTH_CLONES void multiply(const float* a, const float* b, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] * b[i];
}

Kernel kernel(const NodeView& node) {
  const DType dtype = node.in[0].dtype;
  const int64_t count = node.in[0].shape.num_elements();
  return {.run = [=, base = mask_key(node.attrs)](const KernelArgs& args) {
    MaskKey key = base;
    key.step = static_cast<uint32_t>(args.input<int64_t>(1)[0]);
    key.micro_batch = static_cast<uint32_t>(args.input<int64_t>(1)[1]);
    const int64_t num_tiles = (count + kTile - 1) / kTile;
    args.threads->parallel_for(num_tiles, 4, [&](Range tiles) {
      alignas(64) float scratch[kTile];
      alignas(64) float factors[kTile];
      for (int64_t t = tiles.begin; t < tiles.end; ++t) {
        const int64_t n = std::min(kTile, count - t * kTile);
        fill_factors(key, t * kTile / 4, (n + 3) / 4, factors);
        multiply(cpu::as_f32(dtype, args.in[0], t * kTile, n, scratch), factors, scratch, n);
        cpu::store_f32(dtype, scratch, args.out[0], t * kTile, n);
      }
    });
  }};
}

void reference(const ReferenceArgs& args) {
  MaskKey key = mask_key(args.node.attrs);
  key.step = static_cast<uint32_t>(args.in[1][0]);
  key.micro_batch = static_cast<uint32_t>(args.in[1][1]);
  float factors[4];
  for (size_t i = 0; i < args.in[0].size(); ++i) {
    if (i % 4 == 0) fill_factors(key, static_cast<int64_t>(i / 4), 1, factors);
    args.out[0][i] = args.in[0][i] * static_cast<double>(factors[i % 4]);
  }
}

std::vector<Sample> samples() {
  const Attrs attrs = {{"rate", 0.3}, {"seed", int64_t{5}}, {"salt", int64_t{1}}};
  const SampleInput counter = filled(SampleInput::Fill::one, {2}, DType::i64);
  return {{.in = {normal({13, 7}), counter}, .attrs = attrs},
          {.in = {normal({3000}), counter}, .attrs = attrs},
          {.in = {normal({40, 3}, DType::bf16), counter}, .attrs = attrs}};
}

}  // namespace

MaskKey mask_key(const Attrs& attrs) {
  const double rate = attrs.real("rate");
  const auto salt = static_cast<uint64_t>(attrs.integer("salt"));
  return {.key = static_cast<uint64_t>(attrs.integer("seed")) ^ (salt * 0x9E3779B97F4A7C15ULL),
          .step = 0,
          .micro_batch = 0,
          .threshold = static_cast<uint32_t>(rate * 4294967296.0),
          .scale = static_cast<float>(1.0 / (1.0 - rate))};
}

const OpDef dropout{.name = "dropout",
                    .doc =
                        "zeroes elements with probability rate and scales the others to keep the mean; "
                        "Philox of (seed, salt, counter, element)",
                    .inputs = {"x", "counter"},
                    .infer = infer,
                    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
                      return {emit(c, "dropout", {c.grad_out[0], c.node.inputs[1]}, c.node.attrs), kNone};
                    },
                    .cpu = kernel,
                    .gpu = true,
                    .reference = reference,
                    .cost = [](const NodeView& node) { return cost_per_element(node, 10); },
                    .may_work_in_place = true,
                    .samples = samples};

}  // namespace hearth::ops
