#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/philox.h"
#include "ir/op_def.h"
#include "ops/op_list.h"
#include "ops/reference.h"

namespace hearth::ops {

/// A sample of an op; its number.
struct Case {
  const ir::OpDef* op;
  size_t sample;
};

/// Every sample of the ops that `wanted` says yes to.
template <typename Wanted>
std::vector<Case> cases_of(Wanted wanted) {
  std::vector<Case> cases;
  for (const ir::OpDef* op : op_list()) {
    const size_t count = op->samples == nullptr || !wanted(*op) ? 0 : op->samples().size();
    for (size_t i = 0; i < count; ++i) cases.push_back({op, i});
  }
  return cases;
}

inline double draw(const ir::SampleInput& input, PhiloxSequence& random) {
  switch (input.fill) {
    case ir::SampleInput::Fill::positive:
      return 0.5 + static_cast<double>(random.uniform());
    case ir::SampleInput::Fill::label:
      return random.below(static_cast<uint32_t>(input.bound));
    case ir::SampleInput::Fill::label_or_none:
      return static_cast<double>(random.below(static_cast<uint32_t>(input.bound) + 1)) - 1;
    case ir::SampleInput::Fill::zero:
      return 0;
    case ir::SampleInput::Fill::one:
      return 1;
    case ir::SampleInput::Fill::unit:
      return static_cast<double>(random.uniform());
    default:
      return static_cast<double>(random.normal());
  }
}

inline constexpr size_t kGuardBytes = 64;
inline constexpr std::byte kGuard{0x5A};

/// Bytes of a tensor with guard bytes behind them.
inline std::vector<std::byte> store(const ir::Type& type, const std::vector<double>& values) {
  std::vector<std::byte> bytes(static_cast<size_t>(type.num_bytes()) + kGuardBytes, kGuard);
  for (size_t i = 0; i < values.size(); ++i)
    store_element(type.dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  return bytes;
}

/// A sample as a graph of one node with drawn inputs, rounded to their dtypes.
class OpSample : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    op_ = GetParam().op;
    sample_ = op_->samples()[GetParam().sample];
    PhiloxSequence random(17, GetParam().sample);
    std::vector<ir::ValueId> inputs;
    for (const ir::SampleInput& input : sample_.in) {
      if (input.fill == ir::SampleInput::Fill::absent) {
        inputs.push_back(ir::kNone);
        continue;
      }
      const bool moves = is_floating(input.type.dtype);
      const ir::ValueId id = graph_.add_value("", input.type, moves ? ir::Role::parameter : ir::Role::input);
      std::vector<double> values(static_cast<size_t>(input.type.shape.num_elements()));
      for (double& value : values) value = draw(input, random);
      const auto bytes = store(input.type, values);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = load_element(input.type.dtype, bytes.data(), static_cast<int64_t>(i));
      values_[id] = values;
      inputs.push_back(id);
    }
    graph_.add(*op_, inputs, sample_.attrs);
  }

  const ir::Node& node() const { return graph_.nodes[0]; }

  /// Compares outputs, as they lie in memory, with the op's definition in float64.
  void expect_reference(const std::vector<std::vector<std::byte>>& got) const {
    auto want = values_;
    evaluate_reference(graph_, want);
    for (size_t k = 0; k < got.size(); ++k) {
      const ir::Type& type = graph_.type(node().outputs[k]);
      const std::vector<double>& expected = want.at(node().outputs[k]);
      const double storage = type.dtype == DType::bf16 ? 8e-3 : type.dtype == DType::f16 ? 1e-3 : 0;
      double scale = 1;
      for (const double value : expected) scale = std::max(scale, std::fabs(value));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(load_element(type.dtype, got[k].data(), static_cast<int64_t>(i)), expected[i],
                    std::max(sample_.tolerance, storage) * scale)
            << op_->name << " output " << k << " element " << i;
      }
    }
  }

  const ir::OpDef* op_ = nullptr;
  ir::Sample sample_;
  ir::Graph graph_;
  std::map<ir::ValueId, std::vector<double>> values_;
};

inline std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.op->name) + "_" + std::to_string(info.param.sample);
}

}  // namespace hearth::ops
