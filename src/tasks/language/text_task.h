#pragma once

#include "tasks/job.h"
#include "tasks/language/text_rows.h"
#include "tasks/language/text_source.h"

namespace hearth::tasks {

/// Returns text about samples that are cut or left out: ", 3 cut, 2 too long and left out"; empty if there
/// are none.
std::string incomplete_samples_text(const RowCounts& counts);

/// Training of language models on text and conversations. Data is packed into rows of tokens; a sample (the
/// unit that the loss is averaged over) is a token with a label. The constructor opens and tokenizes the
/// data. Throws a UserError if the data does not fit the model, or if the training or the held-out part has
/// no trained token, or if data.balance is set, which is for images.
class TextTask : public Task {
 public:
  explicit TextTask(const Job& job);

  int64_t num_rows() const override { return train_->num_rows(); }
  int64_t num_eval_rows() const override { return held_out_->num_rows(); }
  int64_t num_samples(const data::LoaderPosition& from, int64_t count) const override;
  std::vector<int64_t> row_lengths() const override { return lengths_; }
  using Task::open;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                    const data::LoaderShare& share) const override;
  Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const override;
  const char* unit() const override { return "tok"; }
  std::string describe() const override;
  std::string warning() const override;
  std::string training_warning() const override;
  std::string score_text(double score) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;
  void show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const override;
  int64_t staging_bytes() const override;
  const TextRows& training_rows() const { return *train_; }
  /// Returns the header of a teacher file for the training rows, without the teacher's digest.
  text::TeacherHeader teacher_header(int64_t top_k) const;
  /// Writes the tokenizer's files and config.json, so that the run folder is a model folder. Writes no
  /// config.json if an adapter is trained, because transformers 5 assumes that a folder with config.json
  /// contains full weights.
  void save_companions(const fs::path& run, DType weights) const override;

 protected:
  /// Returns the number of skipped records as text, ", 3 bad records left out"; empty if there are none.
  std::string left_out_text() const;

  TextOptions options_;
  int64_t batch_;
  int64_t teacher_top_k_;
  std::unique_ptr<text::TeacherEntries> teacher_;
  std::unique_ptr<TextRows> train_, held_out_;
  std::vector<int64_t> lengths_;

 private:
  /// Opens distill.from. UserError if it was captured with another tokenizer or from other rows.
  void open_teacher(const fs::path& path);
  /// Opens a sidecar of Surogate. UserError if it was captured from other tokens.
  void open_sidecar(const fs::path& path);
  /// Splits off the held-out part and packs both parts into rows.
  void pack_rows();
  std::string bad_records_note() const;
  std::string reasoning_note() const;
  void save_config(const fs::path& file, DType weights) const;

  bool adapts_;  ///< true: an adapter is trained, not the full model
  models::DecoderConfig config_;
  std::string config_json_;
  TextSource source_;
  text::TokenCache train_tokens_;
  std::optional<text::TokenCache> held_out_tokens_;  ///< tokens of data.val_path, if it is set
  /// Order for num_samples(); mutable, because it caches a window.
  mutable std::optional<RowOrder> counting_order_;
};

}  // namespace hearth::tasks
