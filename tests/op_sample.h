#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "ir/graph.h"
#include "ops/op_list.h"
#include "ops/sample.h"

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
  return std::string(info.param.op->name) + "_" + std::to_string(info.param.sample);
}

}  // namespace hearth::ops
