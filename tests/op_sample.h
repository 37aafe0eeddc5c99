#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph.h"
#include "ops/op_list.h"
#include "ops/sample.h"

namespace hearth::ops {

/// A sample of an op; its number.
struct Case {
  const ir::OpDef* op;
  size_t sample;
  bool in_f16 = false;  ///< with f16 in place of bf16
};

/// The sample with f16 in place of bf16; none where it has no bf16, or where the op refuses f16.
inline std::optional<ir::Sample> in_f16(const ir::OpDef& op, ir::Sample sample) {
  bool changed = false;
  std::vector<ir::Type> types;
  for (ir::SampleInput& input : sample.in) {
    changed |= input.type.dtype == DType::bf16;
    if (input.type.dtype == DType::bf16) input.type.dtype = DType::f16;
    types.push_back(input.type);
  }
  const ir::Attrs attrs = sample.attrs;
  for (const auto& [name, value] : attrs.entries()) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || *text != "bf16") continue;
    sample.attrs.set(name, std::string("f16"));
    changed = true;
  }
  if (!changed || !op.infer({.attrs = sample.attrs, .in = types, .out = {}}).error.empty())
    return std::nullopt;
  return sample;
}

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

inline constexpr size_t kGuardBytes = 64;
inline constexpr std::byte kGuard{0x5A};

/// Bytes of a tensor with guard bytes after them.
inline std::vector<std::byte> store(const ir::Type& type, const std::vector<double>& values) {
  std::vector<std::byte> bytes = to_bytes(type, values);
  bytes.resize(bytes.size() + kGuardBytes, kGuard);
  return bytes;
}

/// A sample with its inputs drawn.
class OpSample : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    op_ = GetParam().op;
    sample_ = op_->samples()[GetParam().sample];
    if (GetParam().in_f16) sample_ = in_f16(*op_, sample_).value();
    drawn_ = draw_sample(*op_, sample_, GetParam().sample);
  }

  const ir::Node& node() const { return drawn_.node(); }

  /// Compares outputs, as they lie in memory, with the op's definition in float64.
  void expect_reference(const std::vector<std::vector<std::byte>>& got) const {
    ASSERT_EQ(compare_with_reference(drawn_, got), "");
  }

  const ir::OpDef* op_ = nullptr;
  ir::Sample sample_;
  DrawnSample drawn_;
  ir::Graph& graph_ = drawn_.graph;
  std::map<ir::ValueId, std::vector<double>>& values_ = drawn_.values;
};

inline std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.op->name) + "_" + std::to_string(info.param.sample) +
         (info.param.in_f16 ? "_f16" : "");
}

}  // namespace hearth::ops
