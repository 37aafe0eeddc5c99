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

/// What a model's folder says about conversations.
struct ChatSetup {
  /// Of chat_template.jinja, else of tokenizer_config.json (of several the one called "default").
  std::optional<std::string> chat_template;
  std::string template_name;  ///< where it was found, for messages
  std::string bos_token;      ///< their texts; empty where the model has none
  std::string eos_token;
};

/// Reads a folder in Hugging Face's layout; files that are not there leave the parts empty. UserError for a
/// tokenizer_config.json that does not parse.
ChatSetup read_chat_setup(const fs::path& folder);
/// The same; texts that the folder does not name are those of the tokenizer's own tokens.
ChatSetup read_chat_setup(const fs::path& folder, const Tokenizer& tokenizer);

/// The source of a template that Hearth brings: "chatml", with tool calls as Qwen has them; "alpaca"
/// (Stanford's "Below is an instruction..."); "plain" (what is said, one after the other, and eos_token after
/// the assistant). Nothing for other names.
std::optional<std::string> built_in_template(std::string_view name);
/// Their names.
std::vector<std::string> built_in_templates();

/// A text and the bytes of it that the loss counts.
struct MarkedText {
  std::string text;
  std::vector<Span> trained;
  /// The template itself marks them. A special token that has taken the white space at a mark then counts, as
  /// in transformers.
  bool by_template = false;
  /// Turns of the assistant after which the template writes no end mark: a model trained on them does not
  /// learn to stop.
  int64_t num_open_turns = 0;
  /// True if the assistant's messages have reasoning, but the template prints none of it.
  bool loses_reasoning = false;
};

struct ChatOptions {
  std::string bos_token = {};  ///< what templates see under these names
  std::string eos_token = {};
  Json variables = Json::object();  ///< more of them, such as enable_thinking
  std::optional<int64_t> now = {};  ///< for strftime_now; see RenderOptions
  /// Texts of the tokenizer's special tokens: the end of a turn never lies inside one.
  std::vector<std::string> special_tokens = {};
  /// Trains on a <think> block that the generation prompt ends with and the answer begins with.
  bool train_on_generation_prompt = false;
};

/// The first second of a day written YYYY-MM-DD, for ChatOptions::now; nothing for what is no day.
std::optional<int64_t> second_of_day(const std::string& day);
/// A day as second_of_day reads it: today, by the clock and zone of this machine.
std::string today();
/// "NAME=VALUE" as a variable of a template: JSON's true, false, null, numbers, lists and objects are taken
/// for what they are, anything else for a string. UserError where the name is none or templates know it
/// already.
void add_variable(ChatOptions& options, const std::string& text);

/// The texts of all special tokens of a tokenizer.
std::vector<std::string> special_tokens_of(const Tokenizer& tokenizer);

/// Renders conversations and marks the assistant's text: from the end of the generation prompt to the
/// end-of-turn token, without white space after it. If the conversation has other text in place of a <think>
/// block of the prompt, or lacks the block, the text from the block on is the assistant's. Uses {% generation
/// %} if the template has it. Otherwise compares with renderings of the messages before and up to the turn,
/// and with another content in its place, so that templates may change contents.
class ChatRenderer {
 public:
  ChatRenderer(Template chat_template, ChatOptions options);

  /// `first_trained`: the first message that may count, for preferences. RecordError when the template
  /// refuses the conversation or does not print a tool call in it, or when what a turn says cannot be told
  /// from the rest.
  /// `budget`: see RenderOptions; also for the renderings that are only compared.
  MarkedText render(const Json& messages, const Json& tools, size_t first_trained = 0,
                    WorkBudget* budget = nullptr) const;
  bool asks_date() const { return template_.asks_date(); }
  /// The prompt for generation after these messages.
  std::string prompt(const Json& messages, const Json& tools) const;

 private:
  friend class TurnFinder;
  Rendered render_template(const Json& messages, const Json& tools, bool prompts, WorkBudget* budget) const;
  void check_tool_calls(const Json& messages, const Json& tools, WorkBudget* budget) const;

  Template template_;
  ChatOptions options_;
};

/// Token ids and, for each, whether the loss counts it.
struct Tokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
  bool operator==(const Tokens&) const = default;
};

/// Tokenizes marked texts. The ids are always those of the whole text tokenized at once, as in transformers;
/// a token that reaches across a mark counts as trained.
class MarkedEncoder {
 public:
  explicit MarkedEncoder(const Tokenizer& tokenizer);
  /// Special tokens that the text names are parsed; none are added.
  Tokens encode(const MarkedText& text) const;

 private:
  class Aligner;
  std::vector<int32_t> encode_part(std::string_view text, bool goes_on) const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> anchor_;  ///< ids of a line's end
  bool adds_blank_;              ///< a blank goes before every text, as SentencePiece does it
};

/// Puts `bos` before and `eos` after (trained like what they stand next to, bos never), each unless the
/// tokens have it already or the model has none.
void add_ends(Tokens& tokens, std::optional<int32_t> bos, std::optional<int32_t> eos);

}  // namespace hearth::text
