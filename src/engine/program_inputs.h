#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/micro_batch.h"
#include "exec/executor.h"

namespace hearth::engine {

/// Matches the arrays of micro-batches with the inputs of the objective by name. As long as the names have
/// the same addresses as in the previous micro-batch, their text is not compared.
class InputOrder {
 public:
  /// `names`: Plan::input_names, which must outlive this object.
  explicit InputOrder(const std::vector<std::string>& names) : names_(names) {}

  /// Returns the micro-batch with its arrays in the order of `names`. Throws an InternalError that names the
  /// input if an array is missing or unknown.
  MicroBatch sorted(const MicroBatch& batch);

 private:
  void match(const MicroBatch& batch);

  const std::vector<std::string>& names_;
  /// Names of the arrays of the previous micro-batch.
  std::array<const char*, data::kMaxArrays> matched_ = {};
  std::array<size_t, data::kMaxArrays> position_ = {};  ///< index of each input's array in that micro-batch
};

/// Inputs of a program for the arrays of a micro-batch. The constructor finds them by name; bind() uses their
/// ids.
class ProgramInputs {
 public:
  /// `prefix`: prefix of the input names if the program computes several micro-batches
  /// (passes::name_in_micro_batch). The executor must outlive this object.
  ProgramInputs(exec::Executor& executor, const std::vector<std::string>& names,
                const std::string& prefix = "");
  ProgramInputs(const ProgramInputs&) = delete;
  ProgramInputs& operator=(const ProgramInputs&) = delete;

  /// Binds the arrays of a micro-batch from InputOrder::sorted().
  void bind(const MicroBatch& batch) const;
  /// Binds the arrays and the input "counter", {step, index}, from which dropout draws its random numbers:
  /// the micro-batch is number `index` of update `step`.
  void bind(const MicroBatch& batch, int64_t step, int64_t index);

 private:
  exec::Executor& executor_;
  /// For each name, the program's input; kNone: the program does not read it.
  std::vector<ir::ValueId> arrays_;
  ir::ValueId counter_input_;
  std::array<int64_t, 2 + kInputSlack / sizeof(int64_t)> counter_ = {};
};

}  // namespace hearth::engine
