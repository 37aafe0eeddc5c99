#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/micro_batch.h"
#include "exec/executor.h"

namespace hearth::engine {

/// Matches the arrays of micro-batches with the inputs of the objective. Compares the addresses of names, and
/// their text only if a micro-batch has other names than the one before it.
class InputOrder {
 public:
  /// `names`: Plan::input_names, which must outlive it.
  explicit InputOrder(const std::vector<std::string>& names) : names_(names) {}

  /// Returns the micro-batch with its arrays in the order of `names`. InternalError that names the input if
  /// one is missing or unknown.
  MicroBatch sorted(const MicroBatch& batch);

 private:
  void match(const MicroBatch& batch);

  const std::vector<std::string>& names_;
  std::array<const char*, data::kMaxArrays> matched_ = {};  ///< names in the last micro-batch
  std::array<size_t, data::kMaxArrays> position_ = {};      ///< of each input in it
};

/// Inputs of a program that a micro-batch is bound to, found once by name.
class ProgramInputs {
 public:
  /// `prefix`: prefix of the names in a program of several micro-batches (passes::name_in_micro_batch).
  /// The executor must outlive it.
  ProgramInputs(exec::Executor& executor, const std::vector<std::string>& names,
                const std::string& prefix = "");
  ProgramInputs(const ProgramInputs&) = delete;
  ProgramInputs& operator=(const ProgramInputs&) = delete;

  /// Binds the arrays of a micro-batch from InputOrder::sorted().
  void bind(const MicroBatch& batch) const;
  /// Also sets the counter of dropout, which is read until the run ends: the micro-batch is number `index` of
  /// update `step`.
  void bind(const MicroBatch& batch, int64_t step, int64_t index);

 private:
  exec::Executor& executor_;
  std::vector<ir::ValueId> arrays_;  ///< kNone: the program does not read the input
  ir::ValueId counter_input_;
  std::array<int64_t, 2 + kInputSlack / sizeof(int64_t)> counter_ = {};
};

}  // namespace hearth::engine
