#pragma once

#include "models/decoder/config.h"
#include "recipe/recipe.h"
#include "text/samples.h"
#include "text/token_cache.h"

namespace hearth::tasks {

/// The files of a language model and its text data.
struct TextOptions {
  recipe::Model model;
  recipe::Data data;
  bool pairs = false;      ///< records have a chosen and a rejected answer
  bool documents = false;  ///< LanguageModelOptions::documents
};

/// Returns the tokenizer's folder, or the folder of its file.
fs::path tokenizer_folder(const recipe::Model& model);
/// Returns the path of the tokenizer: a folder or a file.
fs::path tokenizer_path(const recipe::Model& model);

/// Returns the variables of a chat template besides the messages: the recipe's date (default: today) and
/// variables.
text::ChatOptions chat_options(const recipe::Data& data);
/// Returns true if the chat template asks for the current date.
bool uses_date(const TextOptions& options);

/// Throws a UserError if a sample has one answer but the objective needs pairs, or the reverse.
void check_answers(const text::Sample& sample, const text::SampleReader& reader, bool pairs);

/// Tokenization of files with a recipe's tokenizer, chat template and record formats.
class TextSource {
 public:
  /// UserError if data.template is neither a built-in chat template nor a file. The tokenizer is opened on
  /// first use: UserError if it has more tokens than the model.
  TextSource(const TextOptions& options, const models::DecoderConfig& config);

  /// Returns the tokens of a file (text, records, or "tokens" of a safetensors file), from the token cache if
  /// they are in it. UserError "FILE:LINE: ..." for an invalid record, unless data.bad_records=skip; the
  /// cache is not written then.
  text::TokenCache tokens(const fs::path& file) const;
  /// Opens a file of text or records.
  text::DataFile open(const fs::path& file) const;
  /// Returns a reader of a file's samples. The file and this source must outlive the reader.
  text::SampleReader reader(const text::DataFile& file) const;
  /// Returns the token id for padding: the pad token, or the end of sequence, or 0.
  int32_t padding() const;
  /// Returns the text of the chat template that data.template names; empty if it is not set.
  const std::string& named_template() const { return named_template_; }

 private:
  text::TokenCache token_ids(const fs::path& file) const;
  const text::Tokenizer& tokenizer() const;
  text::SampleOptions sample_options() const;

  TextOptions options_;
  int64_t vocab_size_;
  std::string named_template_;
  mutable std::unique_ptr<text::Tokenizer> tokenizer_;  ///< opened on first use
};

}  // namespace hearth::tasks
