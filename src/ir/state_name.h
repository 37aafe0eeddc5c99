#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::ir {

/// Kind of a persistent value that is stored for a weight.
enum class StateKind : uint8_t {
  itself,        ///< the value itself, not a state of another value: a weight, a running mean, "steps"
  momentum,      ///< f32: momentum buffer of SGD, Lion or Muon
  adam_m,        ///< first moment of Adam: f32, or 8-bit codes with a scale per block
  adam_m_scale,  ///< f32: scale of each block of an 8-bit first moment
  adam_v,        ///< second moment of Adam: f32, or 8-bit codes with a scale per block
  adam_v_scale,  ///< f32: scale of each block of an 8-bit second moment
  /// f32 [rows]: row factor of a matrix's second moment in Adafactor. For weights that are no matrices: the
  /// full second moment.
  rows,
  columns,         ///< f32 [columns]: column factor of a matrix's second moment in Adafactor
  average,         ///< f32: exponential moving average of the weight
  anchor,          ///< f32: the weight after the last synchronization of all workers (local SGD)
  outer_momentum,  ///< f32: momentum of the outer optimizer (local SGD)
  /// f32: error feedback of gradient compression, the part of this worker's gradients that was not sent yet.
  error,
  factor,  ///< f32 [columns, rank]: right factor of the last all-reduced gradient (PowerSGD)
  /// f32: batch statistic (mean or variance) from which the running statistic `weight` will be updated.
  batch_statistic,
  mask,          ///< u8: bit i % 8 of byte i / 8 is set if element i of the weight is pruned
  prune_score,   ///< f32: score by which elements of the weight are pruned or grow
  gradient_sum,  ///< f32: sum over micro-batches of gradients, or of batch statistics for a running statistic
};

/// Parsed name of a persistent value: the kind of state, and the weight to which it belongs.
struct StateName {
  StateKind kind = StateKind::itself;
  std::string weight;
  /// For gradient_sum: 0 for the sum in progress; 1, 2, ... for stored sums of aligned ranges of
  /// micro-batches.
  int level = 0;
  /// If positive: rank of the worker to which the state belongs. Worker 0 gathers such states for a
  /// checkpoint.
  int worker = 0;
  bool operator==(const StateName&) const = default;
};

/// Returns the name that the value has in graphs and checkpoints: "fc.weight", "adam_m/fc.weight",
/// "grad2/fc.weight", "worker3/adam_m/fc.weight". Checkpoints on disk depend on these names.
std::string spell(const StateName& name);
inline std::string spell(StateKind kind, std::string weight) {
  return spell({.kind = kind, .weight = std::move(weight)});
}
/// Parses the name of a persistent value, so that spell(parse_state_name(text)) == text. A text of any other
/// form gives a name of kind `itself` with that text as weight.
StateName parse_state_name(std::string_view text);

}  // namespace hearth::ir
