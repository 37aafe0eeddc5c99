#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/loss/loss.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Number of elements summed in f32 before the sum is added in double, and number of elements per parallel
/// part.
constexpr int64_t kRun = 1024, kPart = 16 * kRun;

struct Samples {
  DType dtype;
  int64_t count, size, parts;
};
Samples samples_of(const NodeView& node) {
  const Type& prediction = node.in_type(SquaredErrorIn::prediction);
  const int64_t count = node.in_type(SquaredErrorIn::weight).shape[0];
  const int64_t size = count == 0 ? 0 : prediction.shape.num_elements() / count;
  return {.dtype = prediction.dtype,
          .count = count,
          .size = size,
          .parts = std::max<int64_t>(1, (size + kPart - 1) / kPart)};
}

HEARTH_CLONES float sum_of_squares(const float* prediction, const float* target, int64_t count) {
  constexpr int64_t kSums = 16;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) {
      const float error = prediction[i + j] - target[i + j];
      sums[j] += error * error;
    }
  }
  for (; i < count; ++i) sums[i % kSums] += (prediction[i] - target[i]) * (prediction[i] - target[i]);
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}
HEARTH_CLONES void scaled_errors(const float* prediction, const float* target, float factor, float* out,
                                 int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = factor * (prediction[i] - target[i]);
}

std::string check(const NodeView& node) {
  const Type &prediction = node.in_type(SquaredErrorIn::prediction),
             &weight = node.in_type(SquaredErrorIn::weight);
  if (prediction.shape.rank() != 2 || !is_storage_float(prediction.dtype))
    return fmt::format("expected predictions to be floating [B * T, F], got {}", to_string(prediction));
  const Type target = f32_type(prediction.shape);
  if (node.in_type(SquaredErrorIn::target) != target)
    return fmt::format("expected targets to be {}, got {}", to_string(target),
                       to_string(node.in_type(SquaredErrorIn::target)));
  if (weight.dtype != DType::f32 || weight.shape.rank() != 1 || weight.shape[0] < 1 ||
      prediction.shape[0] % weight.shape[0] != 0)
    return fmt::format("expected the weights to be f32[B], where B divides {}, got {}", prediction.shape[0],
                       to_string(weight));
  return "";
}
Inferred infer(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  return {.out = {node.in_type(SquaredErrorIn::weight)}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Type& losses = node.in_type(SquaredErrorIn::weight);
  if (node.in_type(SquaredErrorIn::dlosses) != losses)
    return refuse_type("dlosses", to_string(losses), node.in_type(SquaredErrorIn::dlosses));
  return {.out = {node.in_type(SquaredErrorIn::prediction)}, .error = ""};
}

double sum_part(const Samples& samples, const KernelArgs& args, int64_t sample, int64_t part) {
  alignas(64) float scratch[kRun];
  double sum = 0;
  for (int64_t i = part * kPart; i < std::min((part + 1) * kPart, samples.size); i += kRun) {
    const int64_t at = sample * samples.size + i, count = std::min(kRun, samples.size - i);
    const float* prediction =
        cpu::as_f32(samples.dtype, args.in[SquaredErrorIn::prediction], at, count, scratch);
    sum += static_cast<double>(
        sum_of_squares(prediction, args.input<float>(SquaredErrorIn::target) + at, count));
  }
  return sum;
}

Kernel kernel(const NodeView& node) {
  const Samples samples = samples_of(node);
  const auto run = [=](const KernelArgs& args) {
    auto* sums = reinterpret_cast<double*>(args.workspace);
    args.threads->parallel_for(samples.count * samples.parts, 1, [&](Range range) {
      for (int64_t i = range.begin; i < range.end; ++i)
        sums[i] = sum_part(samples, args, i / samples.parts, i % samples.parts);
    });
    for (int64_t s = 0; s < samples.count; ++s) {
      double sum = 0;
      for (int64_t part = 0; part < samples.parts; ++part) sum += sums[s * samples.parts + part];
      const auto weight = static_cast<double>(args.input<float>(SquaredErrorIn::weight)[s]);
      args.output<float>(0)[s] = static_cast<float>(weight * sum / static_cast<double>(samples.size));
    }
  };
  return {.run = run, .workspace_bytes = samples.count * samples.parts * int64_t{sizeof(double)}};
}

Kernel grad_kernel(const NodeView& node) {
  const Samples samples = samples_of(node);
  const int64_t runs = (samples.size + kRun - 1) / kRun;
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(samples.count * runs, kGrain / kRun, [&](Range range) {
      alignas(64) float scratch[kRun], result[kRun];
      for (int64_t r = range.begin; r < range.end; ++r) {
        const int64_t sample = r / runs, first = r % runs * kRun;
        const int64_t at = sample * samples.size + first, count = std::min(kRun, samples.size - first);
        const float factor = 2 * args.input<float>(SquaredErrorIn::weight)[sample] *
                             args.input<float>(SquaredErrorIn::dlosses)[sample] /
                             static_cast<float>(samples.size);
        float* out = run_to_write(samples.dtype, args.out[0], at, result);
        scaled_errors(cpu::as_f32(samples.dtype, args.in[SquaredErrorIn::prediction], at, count, scratch),
                      args.input<float>(SquaredErrorIn::target) + at, factor, out, count);
        cpu::store_f32(samples.dtype, out, args.out[0], at, count);
      }
    });
  }};
}

void reference(const ReferenceArgs& args) {
  const size_t count = args.out[0].size(), size = args.in[SquaredErrorIn::prediction].size() / count;
  for (size_t s = 0; s < count; ++s) {
    double sum = 0;
    for (size_t i = s * size; i < (s + 1) * size; ++i) {
      const double error = args.in[SquaredErrorIn::prediction][i] - args.in[SquaredErrorIn::target][i];
      sum += error * error;
    }
    args.out[0][s] = args.in[SquaredErrorIn::weight][s] * sum / static_cast<double>(size);
  }
}
void grad_reference(const ReferenceArgs& args) {
  const size_t size = args.out[0].size() / args.in[SquaredErrorIn::weight].size();
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const double error = args.in[SquaredErrorIn::prediction][i] - args.in[SquaredErrorIn::target][i];
    args.out[0][i] = 2 * args.in[SquaredErrorIn::weight][i / size] *
                     args.in[SquaredErrorIn::dlosses][i / size] * error / static_cast<double>(size);
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  std::vector<ValueId> inputs = context.node.inputs;
  inputs.push_back(context.grad_out[0]);
  return {emit(context, "squared_error_grad", inputs), kNone, kNone};
}

Sample sample(int64_t count, int64_t rows, int64_t width, DType dtype) {
  return {.in = {normal({count * rows, width}, dtype), normal({count * rows, width}), positive({count})}};
}
std::vector<Sample> samples() {
  return {sample(3, 4, 5, DType::f32),   sample(1, 300, 67, DType::f32),   sample(2, 1, 1, DType::f32),
          sample(3, 9, 16, DType::bf16), sample(2, 170, 130, DType::bf16), sample(2, 3, 5, DType::bf16)};
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) sample.in.push_back(normal(sample.in[SquaredErrorIn::weight].type.shape));
  return result;
}

}  // namespace

const OpDef squared_error{.name = "squared_error",
                          .doc =
                              "squared_error(prediction [B * T, F], target f32, weight f32 [B]): weight "
                              "times the mean of (prediction "
                              "- target)^2 of each sample, f32 [B]",
                          .inputs = {"prediction", "target", "weight"},
                          .infer = infer,
                          .vjp = vjp,
                          .cpu = kernel,
                          .gpu = true,
                          .reference = reference,
                          .cost = [](const NodeView& node) { return stream_cost(node, 3); },
                          .num_following = 1,
                          .samples = samples};

const OpDef squared_error_grad{.name = "squared_error_grad",
                               .doc = "squared_error_grad(prediction, target, weight, dlosses): dprediction",
                               .inputs = {"prediction", "target", "weight", "dlosses"},
                               .infer = infer_grad,
                               .no_vjp_because = kNoSecondDerivatives,
                               .cpu = grad_kernel,
                               .gpu = true,
                               .reference = grad_reference,
                               .cost = [](const NodeView& node) { return stream_cost(node, 2); },
                               .num_following = 1,
                               .samples = grad_samples};

}  // namespace hearth::ops
