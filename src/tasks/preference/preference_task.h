#pragma once

#include "tasks/language/text_task.h"

namespace hearth::tasks {

/// DPO on pairs of a chosen and a rejected answer; each row, and each sample, is a pair. The
/// log-probabilities under the reference model (the initial weights) are computed before the first step and
/// stored in the run folder. Therefore no second model is in memory, and a resumed run uses the same numbers.
class PreferenceTask : public TextTask {
 public:
  explicit PreferenceTask(const Job& job) : TextTask(job), beta_(job.recipe.dpo.beta) {}

  bool evaluates_training_rows() const override { return true; }
  void begin(engine::Engine& engine, const Say& say) override;
  void save_initial_results(const fs::path& run) const override;
  void resume(const fs::path& run) override;
  /// Evaluates the loss and the rewards. The reward of an answer is beta times the change of its
  /// log-probability since the initial weights. Metrics are named as in TRL.
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
