#pragma once

#include "models/decoder/config.h"
#include "text/tokenizer.h"
#include "train/task.h"

namespace hearth::train {

/// Plain text into rows of consecutive tokens, for a language model. Opens and tokenizes the data; UserError
/// where it is shorter than a row, or the tokenizer has more tokens than the model.
class TextTask : public Task {
 public:
  explicit TextTask(const Recipe& recipe);

  int64_t num_rows() const override { return rows_in(train_); }
  int64_t num_eval_rows() const override { return rows_in(held_out_); }
  int64_t num_samples(const data::LoaderPosition&, int64_t count) const override { return count * context_; }
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from) const override;
  Evaluation evaluate(Engine& engine, int64_t num_shown) const override;
  std::string describe() const override;
  std::string score_text(double score) const override;
  void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const override;
  int64_t staging_bytes() const override;
  /// config.json and the tokenizer's files, so that the run folder is a model folder.
  void save_companions(const fs::path& run) const override;

 private:
  /// Appends the tokens of a file: text, or a safetensors file of ids.
  void read(const fs::path& path);
  int64_t rows_in(std::span<const int32_t> tokens) const { return (std::ssize(tokens) - 1) / context_; }

  int64_t context_;
  int64_t batch_;
  bool shuffle_;
  fs::path config_file_;
  fs::path tokenizer_path_;
  models::DecoderConfig config_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<int32_t> tokens_;  ///< training, then held out
  std::span<const int32_t> train_;
  std::span<const int32_t> held_out_;
};

}  // namespace hearth::train
