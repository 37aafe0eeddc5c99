#include "ops/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "ops/reference.h"

namespace hearth::ops {
namespace {

using Fill = ir::SampleInput::Fill;

double draw(const ir::SampleInput& input, PhiloxSequence& random) {
  switch (input.fill) {
    case Fill::positive:
      return 0.5 + static_cast<double>(random.uniform());
    case Fill::label:
      return random.below(static_cast<uint32_t>(input.bound));
    case Fill::label_or_none:
      return static_cast<double>(random.below(static_cast<uint32_t>(input.bound) + 1)) - 1;
    case Fill::log_probability:
      return -std::log(static_cast<double>(input.type.shape.back()) + 1) -
             std::fabs(static_cast<double>(random.normal()));
    case Fill::zero:
      return 0;
    case Fill::one:
      return 1;
    case Fill::unit:
      return static_cast<double>(random.uniform());
    default:
      return static_cast<double>(random.normal());
  }
}

/// Fills rows with `width` distinct ascending integers below `bound` by selection sampling: takes each
/// integer with probability (elements left) / (integers left).
void draw_ascending(std::vector<double>& values, int64_t width, int64_t bound, PhiloxSequence& random) {
  for (size_t begin = 0, row = static_cast<size_t>(width); begin < values.size(); begin += row) {
    for (int64_t next = 0, taken = 0; taken < width; ++next) {
      if (random.below(static_cast<uint32_t>(bound - next)) < static_cast<uint32_t>(width - taken))
        values[begin + static_cast<size_t>(taken++)] = static_cast<double>(next);
    }
  }
}

std::vector<double> drawn_values(const ir::SampleInput& input, PhiloxSequence& random) {
  std::vector<double> values(static_cast<size_t>(input.type.shape.num_elements()));
  if (input.fill == Fill::ascending) {
    draw_ascending(values, input.type.shape.back(), input.bound, random);
  } else {
    for (double& value : values) value = draw(input, random);
  }
  const std::vector<std::byte> bytes = to_bytes(input.type, values);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load_element(input.type.dtype, bytes.data(), static_cast<int64_t>(i));
  return values;
}

}  // namespace

std::vector<std::byte> to_bytes(const ir::Type& type, const std::vector<double>& values) {
  std::vector<std::byte> bytes(static_cast<size_t>(type.num_bytes()));
  for (size_t i = 0; i < values.size(); ++i)
    store_element(type.dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  return bytes;
}

DrawnSample draw_sample(const ir::OpDef& op, const ir::Sample& sample, uint64_t number) {
  DrawnSample drawn{.tolerance = sample.tolerance};
  PhiloxSequence random(17, number);
  std::vector<ir::ValueId> inputs;
  for (const ir::SampleInput& input : sample.in) {
    inputs.push_back(ir::kNone);
    if (input.fill == Fill::absent) continue;
    const bool moves = is_floating(input.type.dtype);
    inputs.back() = drawn.graph.add_value("", input.type, moves ? ir::Role::parameter : ir::Role::input);
    drawn.values[inputs.back()] = drawn_values(input, random);
  }
  drawn.graph.add(op, inputs, sample.attrs);
  return drawn;
}

double sample_tolerance(const ir::Sample& sample, DType dtype) {
  return std::max(sample.tolerance, dtype == DType::bf16 ? 8e-3 : dtype == DType::f16 ? 1e-3 : 0);
}

std::string compare_with_reference(const DrawnSample& sample,
                                   std::span<const std::vector<std::byte>> outputs) {
  auto want = sample.values;
  evaluate_reference(sample.graph, want);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const ir::Type& type = sample.graph.type(sample.node().outputs[k]);
    const std::vector<double>& expected = want.at(sample.node().outputs[k]);
    double scale = 1;
    for (const double value : expected) scale = std::max(scale, std::fabs(value));
    const double allowed = sample_tolerance({.tolerance = sample.tolerance}, type.dtype) * scale;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double got = load_element(type.dtype, outputs[k].data(), static_cast<int64_t>(i));
      if (got == expected[i] || std::fabs(got - expected[i]) <= allowed) continue;
      return fmt::format("element {} of output {} of {} is {:.9g} instead of {:.9g}", i, k,
                         sample.node().op->name, got, expected[i]);
    }
  }
  return "";
}

}  // namespace hearth::ops
