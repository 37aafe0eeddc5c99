#pragma once

#include "models/decoder/config.h"
#include "recipe/recipe.h"
#include "text/samples.h"
#include "text/token_cache.h"

namespace hearth::tasks {

/// Options of text data and of the tokenizer that encodes it.
struct TextOptions {
  recipe::Model model;
  recipe::Data data;
  bool pairs = false;      ///< true if records have a chosen and a rejected answer
  bool documents = false;  ///< see LanguageModelOptions::documents
};

/// Returns the model, the data and the kind of records of a recipe.
TextOptions text_options(const recipe::Recipe& recipe);
/// Returns the folder that contains the tokenizer.
fs::path tokenizer_folder(const recipe::Model& model);
/// Returns the path of the tokenizer, which is a folder or a file.
fs::path tokenizer_path(const recipe::Model& model);

/// Returns the folder for cached tokens; UserError if neither data.cache nor a home folder is set.
fs::path cache_folder(const recipe::Data& data);

/// Returns the values that a chat template can use in addition to the messages: the recipe's date (default:
/// today) and variables.
text::ChatOptions chat_options(const recipe::Data& data);
/// True if the chat template uses the current date.
bool uses_date(const TextOptions& options);

/// Returns the number of tokens of a tokenizer, and a digest of their texts.
std::pair<int64_t, uint64_t> vocabulary_of(const fs::path& tokenizer);

/// Throws a UserError if the objective needs pairs of answers (`pairs`) but a sample has one answer, or the
/// reverse.
void check_answers(const text::Sample& sample, const text::SampleReader& reader, bool pairs);

/// Tokenizes files with the tokenizer, chat template and record format of a recipe.
class TextSource {
 public:
  /// Throws a UserError if data.template is neither a built-in chat template nor a file. The tokenizer is
  /// opened on first use, which throws a UserError if it has more tokens than the model.
  TextSource(const TextOptions& options, const models::DecoderConfig& config);

  /// Returns the tokens of a file (text, records, or "tokens" of a safetensors file), from the token cache if
  /// the file was tokenized before. Throws a UserError "FILE:LINE: ..." for an invalid record, unless
  /// data.bad_records=skip; after an error nothing is cached.
  text::TokenCache tokens(const fs::path& file) const;
  /// Opens a file of text or records.
  text::DataFile open(const fs::path& file) const;
  /// Returns a reader of a file's samples. `file` and this object must outlive the reader.
  text::SampleReader reader(const text::DataFile& file) const;
  /// Returns the token id for padding: the pad token; if there is none, the end-of-sequence token; otherwise
  /// 0.
  int32_t padding() const;
  /// Returns the number of tokens of the tokenizer and a digest of its vocabulary. For data of token ids: the
  /// vocabulary size of the model, and 0.
  std::pair<int64_t, uint64_t> vocabulary() const;
  /// Returns the text of the chat template that data.template names; empty if data.template is not set.
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
