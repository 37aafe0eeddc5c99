#include "ir/state_name.h"

#include <gtest/gtest.h>

#include <utility>

namespace hearth::ir {
namespace {

/// The spellings that checkpoints on disk have.
TEST(StateNames, KeepTheirSpellingOnDisk) {
  const std::string weight = "model.layers.0.mlp.up_proj.weight";
  const std::pair<StateKind, std::string> kinds[] = {
      {StateKind::itself, ""},
      {StateKind::momentum, "momentum/"},
      {StateKind::adam_m, "adam_m/"},
      {StateKind::adam_m_scale, "adam_m_scale/"},
      {StateKind::adam_v, "adam_v/"},
      {StateKind::adam_v_scale, "adam_v_scale/"},
      {StateKind::rows, "rows/"},
      {StateKind::columns, "columns/"},
      {StateKind::average, "ema/"},
      {StateKind::anchor, "anchor/"},
      {StateKind::outer_momentum, "outer_momentum/"},
      {StateKind::error, "error/"},
      {StateKind::factor, "factor/"},
      {StateKind::batch_statistic, "batch/"},
      {StateKind::mask, "mask/"},
      {StateKind::prune_score, "prune_score/"},
      {StateKind::gradient_sum, "grad/"},
  };
  for (const auto& [kind, prefix] : kinds) {
    EXPECT_EQ(spell(kind, weight), prefix + weight);
    EXPECT_EQ(parse_state_name(prefix + weight), (StateName{.kind = kind, .weight = weight}));
    const StateName away{.kind = kind, .weight = weight, .worker = 12};
    EXPECT_EQ(spell(away), "worker12/" + prefix + weight);
    EXPECT_EQ(parse_state_name(spell(away)), away);
  }
  EXPECT_EQ(std::size(kinds), static_cast<size_t>(StateKind::gradient_sum) + 1);
}

TEST(StateNames, TellTheLevelsOfSumsApart) {
  const StateName sum{.kind = StateKind::gradient_sum, .weight = "fc.weight", .level = 3};
  EXPECT_EQ(spell(sum), "grad3/fc.weight");
  EXPECT_EQ(parse_state_name("grad3/fc.weight"), sum);
}

TEST(StateNames, LeaveWhatIsSpelledOtherwiseAsItIs) {
  for (const char* text : {"",
                           "/",
                           "steps",
                           "fc.weight",
                           "emax/w",
                           "momentum1/w",
                           "ema",
                           "grad0/w",
                           "grad01/w",
                           "grad-1/w",
                           "grad99999999999/w",
                           "worker/w",
                           "worker0/w",
                           "worker01/w",
                           "worker1",
                           "worker-1/w",
                           "m0/images",
                           "worker2/steps",
                           "worker2/x/y",
                           "worker2/worker3/w",
                           "ema/momentum/w",
                           "worker2/"}) {
    EXPECT_EQ(spell(parse_state_name(text)), text);
  }
  EXPECT_EQ(parse_state_name("worker0/w"), (StateName{.weight = "worker0/w"}));
  EXPECT_EQ(parse_state_name("grad0/w"), (StateName{.weight = "grad0/w"}));
  EXPECT_EQ(parse_state_name("ema/momentum/w"),
            (StateName{.kind = StateKind::average, .weight = "momentum/w"}));
}

}  // namespace
}  // namespace hearth::ir
