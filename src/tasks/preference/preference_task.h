#pragma once

#include "tasks/language/text_task.h"

namespace hearth::tasks {

/// DPO on pairs of a chosen and a rejected answer; a row and a sample are a pair. The log-probabilities under
/// the reference model (the initial weights) are computed before the first step and stored in the run folder:
/// no second model is in memory, and a resumed run continues with the same numbers.
class PreferenceTask : public TextTask {
 public:
  PreferenceTask(const TextTaskOptions& options, double beta);

  bool evaluates_training_rows() const override { return true; }
  void begin(engine::Engine& engine, const Say& say) override;
  void save_initial_results(const fs::path& run) const override;
  void resume(const fs::path& run) override;
  /// Computes the rewards, beta times the change of an answer's log-probability, and their metrics, named as
  /// in TRL.
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  const char* unit() const override { return "pair"; }
  std::string describe() const override;
  std::string score_text(double score) const override;
  std::string evaluation_text(const Evaluation& found) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;

 private:
  /// Returns the log-probabilities of both answers of each row, in the order of the rows.
  std::vector<float> reference_logprobs(engine::Engine& engine, const TextRows& rows) const;

  double beta_;
  bool has_reference_ = false;
};

}  // namespace hearth::tasks
