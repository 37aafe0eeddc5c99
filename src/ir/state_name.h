#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::ir {

/// Kind of state that a persistent value holds for a weight.
enum class StateKind : uint8_t {
  itself,        ///< no state of another value: a weight, a running mean, "steps"
  momentum,      ///< f32: momentum of SGD, Lion and Muon
  adam_m,        ///< first moment, f32, or u8 with scales
  adam_m_scale,  ///< f32, one scale per block of an 8-bit first moment
  adam_v,        ///< second moment, f32, or u8 with scales
  adam_v_scale,  ///< f32, one scale per block of an 8-bit second moment
  /// f32 [rows]: Adafactor's row factor of a matrix's second moment; for other shapes, the full second moment
  rows,
  columns,         ///< f32 [columns]: Adafactor's column factor
  average,         ///< f32: exponential moving average of the weight
  anchor,          ///< f32: the weight after the last synchronization of all workers (local SGD)
  outer_momentum,  ///< f32: momentum of the outer optimizer (local SGD)
  /// f32: error feedback, the part of this worker's gradient that was not sent yet (gradient compression)
  error,
  factor,           ///< f32 [columns, rank]: right factor of the last all-reduced gradient (PowerSGD)
  batch_statistic,  ///< f32: batch statistic from which the running value `weight` will be updated
  gradient_sum,     ///< f32: sum over micro-batches, of gradients or, for running values, of batch statistics
};

/// Identity of a persistent value: the kind of state and the weight to which it belongs.
struct StateName {
  StateKind kind = StateKind::itself;
  std::string weight;
  /// For gradient_sum: 0, or 1, 2, ... for stored sums of complete shards.
  int level = 0;
  /// If positive: the state of that worker only, gathered on worker 0 for a checkpoint.
  int worker = 0;
  bool operator==(const StateName&) const = default;
};

/// Returns the name of such a value in graphs and checkpoints: "fc.weight", "adam_m/fc.weight",
/// "grad2/fc.weight", "worker3/adam_m/fc.weight". Checkpoints on disk depend on these spellings.
std::string spell(const StateName& name);
inline std::string spell(StateKind kind, std::string weight) {
  return spell({.kind = kind, .weight = std::move(weight)});
}
/// Parses a name; spell(parse_state_name(text)) == text for every text. Text of any other form gives a name
/// of kind `itself`.
StateName parse_state_name(std::string_view text);

}  // namespace hearth::ir
