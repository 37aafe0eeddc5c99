#pragma once

#include "tasks/language/text_task.h"

namespace hearth::tasks {

/// Pairs of a chosen and a rejected answer, for tasks/preference/dpo.h; a row and a sample are a pair. What
/// the starting model makes of the answers is computed before the first step and kept in the run folder, so
/// that no second model is in memory and a resumed run continues with the same numbers.
class PreferenceTask : public TextTask {
 public:
  PreferenceTask(const TextTaskOptions& options, double beta);

  bool evaluates_training_rows() const override { return true; }
  void begin(engine::Engine& engine, const Say& say) override;
  void save_beginning(const fs::path& run) const override;
  void resume(const fs::path& run) override;
  /// Rewards are beta times how far a log-probability has moved; names as in TRL.
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  const char* unit() const override { return "pair"; }
  std::string describe() const override;
  std::string score_text(double score) const override;
  std::string evaluation_text(const Evaluation& found) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;

 private:
  std::vector<float> reference_of(engine::Engine& engine, const TextRows& rows) const;

  double beta_;
  bool has_begun_ = false;
};

}  // namespace hearth::tasks
