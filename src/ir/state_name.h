#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::ir {

/// What a persistent value keeps of the weight whose name it carries.
enum class StateKind : uint8_t {
  itself,           ///< the value is no state of another: a weight, a running mean, "steps"
  momentum,         ///< f32: of SGD, Lion and Muon
  adam_m,           ///< first moment, f32, or u8 with scales
  adam_m_scale,     ///< f32, one per block of a first moment in 8 bits
  adam_v,           ///< second moment, f32, or u8 with scales
  adam_v_scale,     ///< f32, one per block of a second moment in 8 bits
  rows,             ///< f32 [rows]: Adafactor's second moment of a matrix; of others, the whole
  columns,          ///< f32 [columns]: the other half of it
  average,          ///< f32: exponential moving average of the weight
  anchor,           ///< f32: the weight that all workers had last (local steps)
  outer_momentum,   ///< f32: of the steps together (local steps)
  error,            ///< f32: what has not been sent yet of a worker's own gradient (compression)
  factor,           ///< f32 [columns, rank]: right factor of the last sum of gradients (PowerSGD)
  batch_statistic,  ///< f32: what a batch norm measured, which is to move the running value `weight`
  gradient_sum,     ///< f32: sum over micro-batches; of running values, of what was measured
};

/// Which state of which weight a persistent value is.
struct StateName {
  StateKind kind = StateKind::itself;
  std::string weight;
  /// Of a gradient_sum: 0, or 1, 2 ... for the sums of whole shards that are put away.
  int level = 0;
  /// More than 0: where worker 0 keeps, for a checkpoint, what that worker alone has.
  int worker = 0;
  bool operator==(const StateName&) const = default;
};

/// The name of such a value in graphs and checkpoints: "fc.weight", "adam_m/fc.weight", "grad2/fc.weight",
/// "worker3/adam_m/fc.weight". Checkpoints on disk rely on these spellings.
std::string spell(const StateName& name);
inline std::string spell(StateKind kind, std::string weight) {
  return spell({.kind = kind, .weight = std::move(weight)});
}
/// The other way round: spell(parse_state_name(text)) == text for every text. What is spelled otherwise is a
/// name `itself`.
StateName parse_state_name(std::string_view text);

}  // namespace hearth::ir
