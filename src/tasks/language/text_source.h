#pragma once

#include "models/decoder/config.h"
#include "recipe/recipe.h"
#include "text/samples.h"
#include "text/token_cache.h"

namespace hearth::tasks {

/// A language model's files and its text.
struct TextOptions {
  recipe::Model model;
  recipe::Data data;
  bool pairs = false;      ///< records have a chosen and a rejected answer
  bool documents = false;  ///< LanguageModelOptions::documents
};

/// A tokenizer's folder, or the folder of its file.
fs::path tokenizer_folder(const recipe::Model& model);
/// Returns the path of the tokenizer: a folder or a file.
fs::path tokenizer_path(const recipe::Model& model);

/// What a chat template is told beside the messages: date and variables of the recipe, else today's.
text::ChatOptions chat_options(const recipe::Data& data);
/// Returns true if the chat template asks for the current date.
bool uses_date(const TextOptions& options);

/// Throws a UserError if a sample has one answer but the objective needs pairs, or the reverse.
void check_answers(const text::Sample& sample, const text::SampleReader& reader, bool pairs);

/// Turns files into tokens as a recipe says: its tokenizer, its chat template, its formats.
class TextSource {
 public:
  /// UserError where the tokenizer has more tokens than the model, or the chat template is not supported.
  TextSource(const TextOptions& options, const models::DecoderConfig& config);

  /// The tokens of a file (text, records, or "tokens" of a safetensors file), from the cache where they are
  /// there. UserError "FILE:LINE: ..." where a record cannot be used and the recipe does not skip it: then
  /// nothing is left behind.
  text::TokenCache tokens(const fs::path& file) const;
  text::DataFile open(const fs::path& file) const;
  /// Both must outlive the reader.
  text::SampleReader reader(const text::DataFile& file) const;
  /// The id that fills up rows.
  int32_t padding() const;
  /// The source of the chat template that the recipe names; empty where it names none.
  const std::string& own_template() const { return own_template_; }

 private:
  text::TokenCache token_ids(const fs::path& file) const;
  const text::Tokenizer& tokenizer() const;
  text::SampleOptions sample_options() const;

  TextOptions options_;
  int64_t vocab_size_;
  std::string own_template_;
  mutable std::unique_ptr<text::Tokenizer> tokenizer_;  ///< opened when it is needed
};

}  // namespace hearth::tasks
