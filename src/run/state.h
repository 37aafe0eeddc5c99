#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "data/loader.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Mean and variance of the losses of about the last 100 updates: plain averages at first, then exponentially
/// weighted (Finch 2009, "Incremental calculation of weighted mean and variance").
struct LossStatistics {
  double mean = 0;
  double variance = 0;
  int64_t count = 0;

  void add(double loss);
  /// Returns by how many standard deviations a loss exceeds the mean; 0 if it does not, or for fewer than 20
  /// losses.
  double z_score(double loss) const;
};

/// Fingerprint of the files of one input of a run, at the time when the run read them.
struct InputState {
  std::string key;
  int64_t num_files = 0, num_bytes = 0;
  uint64_t digest = 0;  ///< XXH3 of names, sizes, and full or sampled contents (run/inputs.h)
  bool operator==(const InputState&) const = default;
};

/// State of a run between two updates, in addition to weights and optimizer state. Checkpoints contain all
/// three.
struct RunState {
  static constexpr double kNoScore = std::numeric_limits<double>::lowest();
  int64_t step = 0;  ///< number of completed updates
  double best_score = kNoScore;
  int64_t evaluations_without_gain = 0;
  data::LoaderPosition position;
  /// Number of workers if each worker has private state (recipe::have_private_states); otherwise 1.
  int num_workers = 1;
  std::string optimizer;  ///< optimizer.name; empty: an old checkpoint without this field
  int64_t num_rows = 0;   ///< rows of data in an epoch; 0: an old checkpoint without this field
  LossStatistics losses;
  int64_t num_bad = 0;             ///< skipped updates (recipe::BadSteps)
  int64_t num_bad_in_row = 0;      ///< consecutive skipped updates up to now
  std::vector<InputState> inputs;  ///< of the input files; empty: an old checkpoint without this field
};

/// A RunState as JSON. Text of up to 2048 bytes is stored without a heap allocation, because the training
/// loop must not allocate.
using StateText = fmt::basic_memory_buffer<char, 2048>;
StateText write_run_state(const RunState& state);
/// Parses the text of write_run_state(). `where`: name of its file in messages. Throws a UserError if the
/// text is not a valid state.
RunState parse_run_state(std::string_view json, std::string_view where);

/// Returns text that identifies a recipe, to recognize checkpoints of other runs. Class names are not
/// included, because they are unknown before the data is open.
std::string identity_of(recipe::Recipe recipe);

}  // namespace hearth::run
