#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/conversation.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

namespace hearth::text {

/// Chat settings of a model folder.
struct ChatSetup {
  /// Source text of the chat template: chat_template.jinja if present, otherwise from tokenizer_config.json
  /// (the one called "default" if there are several).
  std::optional<std::string> chat_template;
  std::string template_name;  ///< name of the template's file, for messages
  /// Spelling of the BOS token, and below of the EOS token; empty if the model has none.
  std::string bos_token;
  std::string eos_token;
};

/// Reads the chat settings of a model folder in Hugging Face's layout. Fields without a file stay empty.
/// Throws a UserError if tokenizer_config.json is invalid.
ChatSetup read_chat_setup(const fs::path& folder);
/// Reads the chat settings of a model folder; takes BOS and EOS from the tokenizer if the folder does not
/// define them.
ChatSetup read_chat_setup(const fs::path& folder, const Tokenizer& tokenizer);

/// Returns the source of a built-in template, or nothing for an unknown name. "chatml" includes tool calls in
/// Qwen's format; "alpaca" is Stanford's "Below is an instruction..."; "plain" concatenates the contents and
/// writes eos_token after each answer of the assistant.
std::optional<std::string> built_in_template(std::string_view name);
/// Returns the names of the built-in templates.
std::vector<std::string> built_in_templates();

/// A rendered text and the byte ranges in it that count in the loss.
struct MarkedText {
  std::string text;
  std::vector<Span> trained;
  /// True if the template marks the ranges itself by {% generation %}. Then a special token that includes
  /// white space across the boundary of a range counts in the loss, as in transformers.
  bool by_template = false;
  /// Number of assistant turns without an end-of-turn token after them: a model trained on them does not
  /// learn to stop.
  int64_t num_open_turns = 0;
  /// True if the assistant's messages have reasoning, but the template prints none of it.
  bool loses_reasoning = false;
};

/// Options of rendering conversations.
struct ChatOptions {
  std::string bos_token = {};  ///< values of the template variables bos_token and eos_token
  std::string eos_token = {};
  Json variables = Json::object();  ///< additional template variables such as enable_thinking
  std::optional<int64_t> now = {};  ///< time for the template function strftime_now; see RenderOptions::now
  /// Texts of the tokenizer's special tokens. The boundary of a turn is never placed inside one of them.
  std::vector<std::string> special_tokens = {};
  /// True if a <think> block at the end of the generation prompt, with which the answer begins, counts in the
  /// loss.
  bool train_on_generation_prompt = false;
};

/// Returns the start (UTC, in seconds since 1970) of a day written YYYY-MM-DD, for ChatOptions::now; nothing
/// if it is no valid day.
std::optional<int64_t> second_of_day(const std::string& day);
/// Returns the current local date as YYYY-MM-DD.
std::string today();
/// Adds a template variable given as the text NAME=VALUE. A VALUE that is a JSON literal (true, false, null,
/// number, list or object) is parsed; anything else is a string. Throws a UserError if NAME is not an
/// identifier or is set by Hearth.
void add_variable(ChatOptions& options, const std::string& text);

/// Returns the texts of all special tokens of a tokenizer.
std::vector<std::string> special_tokens_of(const Tokenizer& tokenizer);

/// Renders conversations with a chat template and marks the text of the assistant: from the end of the
/// generation prompt to the end-of-turn token inclusive, without white space after it. If the generation
/// prompt contains a <think> block that an answer does not start with, the marked text starts at that block.
/// Uses {% generation %} if the template has it. Otherwise finds each turn by comparing renderings (see
/// TurnFinder in chat.cpp), so templates may change contents.
class ChatRenderer {
 public:
  ChatRenderer(Template chat_template, ChatOptions options);

  /// Renders a conversation. `first_trained`: index of the first message that may count in the loss (for
  /// preference data). `budget`: see RenderOptions::budget; renderings for comparison are charged too. Throws
  /// a RecordError if the template rejects the conversation or omits a tool call, or if a turn cannot be
  /// located in the text.
  MarkedText render(const Json& messages, const Json& tools, size_t first_trained = 0,
                    WorkBudget* budget = nullptr) const;
  /// True if the template uses the date, so that ChatOptions::now must be set.
  bool asks_date() const { return template_.asks_date(); }
  /// Returns the text that a model continues: the rendered messages followed by the generation prompt.
  std::string prompt(const Json& messages, const Json& tools) const;

 private:
  friend class TurnFinder;
  Rendered render_template(const Json& messages, const Json& tools, bool prompts, WorkBudget* budget) const;
  void check_tool_calls(const Json& messages, const Json& tools, WorkBudget* budget) const;

  Template template_;
  ChatOptions options_;
};

/// Token ids of a text; `trained` has one entry per id, 1 if the token counts in the loss.
struct Tokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
  bool operator==(const Tokens&) const = default;
};

/// Tokenizes marked texts. The ids are always those of the full text tokenized in one call, as in
/// transformers; a token that crosses the boundary of a trained range counts in the loss.
class MarkedEncoder {
 public:
  explicit MarkedEncoder(const Tokenizer& tokenizer);
  /// Returns the tokens of a marked text. Special tokens that occur in the text are parsed; none are added.
  Tokens encode(const MarkedText& text) const;

 private:
  class Aligner;
  std::vector<int32_t> encode_part(std::string_view text, bool is_continuation) const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> anchor_;  ///< token ids of a newline, see encode_part()
  bool adds_blank_;  ///< true if the tokenizer prepends a space to each text, as SentencePiece does
};

/// Puts `bos` before and `eos` after the tokens, unless they have it already or the model has none. `bos`
/// never counts in the loss; `eos` counts if the token before it does.
void add_ends(Tokens& tokens, std::optional<int32_t> bos, std::optional<int32_t> eos);

}  // namespace hearth::text
