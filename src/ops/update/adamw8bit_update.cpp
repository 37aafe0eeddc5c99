// AdamW with 8-bit moments (Dettmers et al. 2021, arXiv 2110.02861): each block of kBlock8Bit elements is
// dequantized, updated in f32, and quantized again with the block's absmax as its scale. The 8-bit codes are
// those of bitsandbytes' dynamic map (dynamic_map.h), signed for m and unsigned for v.
#include <algorithm>
#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/threads.h"
#include "ops/update/dynamic_map.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

constexpr int64_t kBlock = kBlock8Bit;
int64_t num_blocks(int64_t count) { return (count + kBlock - 1) / kBlock; }

/// Updates the dequantized moments m and v of a block with its gradient.
HEARTH_CLONES void move_states(const Adam8Step& step, const float* grad, float* m, float* v, int64_t count) {
  const Adam8Step s = step;
  for (int64_t i = 0; i < count; ++i) s.move_moments(grad[i], m[i], v[i]);
}
HEARTH_CLONES void move_param(const Adam8Step& step, const float* m, const float* v, float* param,
                              int64_t count) {
  const Adam8Step s = step;
  for (int64_t i = 0; i < count; ++i) s.move(m[i], v[i], param[i]);
}
void read_codes(const DynamicMap& map, float scale, const uint8_t* codes, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = scale * map[codes[i]];
}

/// Quantizes a block's moments to codes. Returns the scale, which is their absmax.
float write_codes(bool with_sign, const float* in, uint8_t* codes, int64_t count) {
  float absmax = 0;
  for (int64_t i = 0; i < count; ++i) absmax = std::max(absmax, std::fabs(in[i]));
  quantize_dynamic(with_sign, in, absmax > 0 ? 1 / absmax : 0, codes, count);
  if (with_sign) keep_signs(in, codes, count);
  return absmax;
}

/// Infers the outputs param, m, m_scale, v and v_scale. Inputs: param, grad, lr, factor, m, m_scale, v,
/// v_scale, step_count.
Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, adamw8bit_update, {kGrad}); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, adamw8bit_update, kRate, kFactor); !error.empty())
    return refuse(error);
  if (auto error = check_scalars(node, adamw8bit_update, 8, 8); !error.empty()) return refuse(error);
  const Type& type = node.in_type(kParam);
  const Type codes{.dtype = DType::u8, .shape = type.shape};
  const Type scales = f32_type({num_blocks(type.shape.num_elements())});
  for (const size_t i : {size_t{4}, size_t{6}}) {
    if (node.in_type(i) != codes) return refuse_type("the moments", to_string(codes), node.in_type(i));
    if (node.in_type(i + 1) != scales)
      return refuse_type("the scales of the moments", to_string(scales), node.in_type(i + 1));
  }
  return {.out = {type, codes, scales, codes, scales}, .error = ""};
}

void run_block(const Adam8Step& step, DType dtype, const KernelArgs& args, int64_t block, int64_t count) {
  alignas(64) float grads[kBlock], m[kBlock], v[kBlock];
  const int64_t at = block * kBlock;
  const int64_t n = std::min(kBlock, count - at);
  auto *m_codes = args.output<uint8_t>(1) + at, *v_codes = args.output<uint8_t>(3) + at;
  float *m_scale = args.output<float>(2) + block, *v_scale = args.output<float>(4) + block;
  read_codes(dynamic_map(true), *m_scale, m_codes, m, n);
  read_codes(dynamic_map(false), *v_scale, v_codes, v, n);
  move_states(step, cpu::as_f32(dtype, args.in[kGrad], at, n, grads), m, v, n);
  move_param(step, m, v, args.output<float>(0) + at, n);
  *m_scale = write_codes(true, m, m_codes, n);
  *v_scale = write_codes(false, v, v_codes, n);
}

Kernel cpu(const NodeView& node) {
  const int64_t count = node.in_type(kParam).shape.num_elements();
  const DType dtype = node.in_type(kGrad).dtype;
  const auto run = [count, dtype, options = adam_options(node.attrs)](const KernelArgs& args) {
    if (*args.input<float>(kFactor) < 0) return;
    const Adam8Step step =
        adam8_step(options, *args.input<float>(kRate), *args.input<float>(kFactor), *args.input<float>(8));
    args.threads->parallel_for(num_blocks(count), 8, [&](Range range) {
      for (int64_t block = range.begin; block < range.end; ++block)
        run_block(step, dtype, args, block, count);
    });
  };
  return {.run = run, .workspace_bytes = 0};
}

/// Reference for write_codes(): returns the code nearest to value / absmax by exhaustive search, moved to the
/// adjacent code if its sign differs from that of `value`.
double nearest_code(bool with_sign, double value, double absmax) {
  const DynamicMap& map = dynamic_map(with_sign);
  const double x = absmax > 0 ? value / absmax : 0;
  size_t best = 0;
  for (size_t c = 1; c < map.size(); ++c) {
    if (std::fabs(static_cast<double>(map[c]) - x) < std::fabs(static_cast<double>(map[best]) - x)) best = c;
  }
  if (with_sign && value < 0 && map[best] >= 0) --best;
  if (with_sign && value > 0 && map[best] < 0) ++best;
  return static_cast<double>(best);
}

void reference_block(const ReferenceArgs& args, size_t begin, size_t end) {
  const AdamOptions options = adam_options(args.node.attrs);
  const double rate = args.in[kRate][0], count = args.in[8][0];
  const size_t block = begin / kBlock;
  std::vector<double> m, v;
  double absmax_m = 0, absmax_v = 0;
  for (size_t i = begin; i < end; ++i) {
    const double g = args.in[kFactor][0] * args.in[kGrad][i];
    const double old_m = static_cast<double>(dynamic_map(true)[static_cast<size_t>(args.in[4][i])]);
    const double old_v = static_cast<double>(dynamic_map(false)[static_cast<size_t>(args.in[6][i])]);
    m.push_back(options.beta1 * args.in[5][block] * old_m + (1 - options.beta1) * g);
    v.push_back(options.beta2 * args.in[7][block] * old_v + (1 - options.beta2) * g * g);
    const double m_hat = m.back() / (1 - std::pow(options.beta1, count));
    const double v_hat = v.back() / (1 - std::pow(options.beta2, count));
    const double moved = args.in[kParam][i] - rate * m_hat / (std::sqrt(v_hat) + options.eps);
    args.out[0][i] = moved * (1 - rate * options.weight_decay);
    absmax_m = std::max(absmax_m, std::fabs(m.back()));
    absmax_v = std::max(absmax_v, v.back());
  }
  args.out[2][block] = absmax_m;
  args.out[4][block] = absmax_v;
  for (size_t i = begin; i < end; ++i) {
    args.out[1][i] = nearest_code(true, m[i - begin], absmax_m);
    args.out[3][i] = nearest_code(false, v[i - begin], absmax_v);
  }
}

void reference(const ReferenceArgs& args) {
  const size_t count = args.in[kParam].size();
  for (size_t begin = 0; begin < count; begin += kBlock)
    reference_block(args, begin, std::min(begin + kBlock, count));
}

Sample sample(const Shape& shape, DType dtype, double decay) {
  const SampleInput codes = indices(shape, 256, DType::u8);
  const SampleInput scales = positive({num_blocks(shape.num_elements())});
  return {.in = {normal(shape), normal(shape, dtype), positive({}), positive({}), codes, scales, codes,
                 scales, positive({})},
          .attrs = {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", decay}}};
}
std::vector<Sample> samples() {
  return {sample({3, 7}, DType::f32, 0.01), sample({4500}, DType::f32, 0), sample({2, 256}, DType::bf16, 0.1),
          sample({4500}, DType::bf16, 0)};
}

}  // namespace

const OpDef adamw8bit_update{
    .name = "adamw8bit_update",
    .doc =
        "adamw8bit_update(param, grad, lr, factor, m, m_scale, v, v_scale, step_count): AdamW with moments "
        "in dynamic 8-bit codes, one scale per 256 (arXiv 2110.02861), in place",
    .inputs = {"param", "grad", "lr", "factor", "m", "m_scale", "v", "v_scale", "step_count"},
    .infer = infer,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = cpu,
    .gpu = true,
    .gpu_many = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 60); },
    .precision = ir::Precision::full,
    .writes = {0, 4, 5, 6, 7},
    .samples = samples};

}  // namespace hearth::ops
