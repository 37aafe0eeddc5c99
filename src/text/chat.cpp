#include "text/chat.h"

#include <algorithm>

#include "base/text.h"

namespace hearth::text {
namespace {

size_t shared_start(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// The text that a template prints before and after a message's content.
struct Frame {
  std::string before;
  std::string after;
};

/// Returns a word that does not occur in `text`.
std::string unused_word(const std::string& text) {
  std::string word = "call";
  while (text.find(word) != text.npos) word += std::to_string(word.size());
  return word;
}

/// Replaces the names and arguments of the assistant's tool calls by unique words that start with `word`.
/// Returns these words, each with the index of its message: a word that is missing in a rendering shows that
/// the template omits the call.
std::vector<std::pair<std::string, size_t>> rename_tool_calls(Json& messages, const std::string& word) {
  std::vector<std::pair<std::string, size_t>> words;
  const auto add = [&](size_t i) {
    words.emplace_back(fmt::format("{}x{}x", word, words.size()), i);
    return words.back().first;
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!has_tool_calls(messages[i])) continue;
    for (Json& call : messages[i]["tool_calls"]) {
      Json& function = call.contains("function") ? call["function"] : call;
      function["name"] = add(i);
      if (!function.contains("arguments") || function["arguments"].empty()) continue;
      Json& arguments = function["arguments"];
      if (arguments.is_string()) {
        arguments = add(i);
      } else if (arguments.is_object()) {
        arguments = Json{{add(i), 0}};
      }
    }
  }
  return words;
}

/// Returns a control character that occurs in no message; nothing if all are used.
std::optional<char> unused_character(const Json& messages) {
  const std::string all = messages.dump();
  for (char c = 1; c < 9; ++c) {
    if (all.find(fmt::format("\\u{:04x}", static_cast<int>(c))) == all.npos) return c;
  }
  return std::nullopt;
}

}  // namespace

/// Finds the byte range of the assistant's turns in a rendered conversation. A template may print anything,
/// so the range is found by comparing renderings. Example, the second message of a ChatML conversation:
///
///   full: <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n
///   prompt: <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n
///
/// Rendering the messages before the turn with a generation prompt gives "prompt". It is a prefix of the full
/// text, so the turn starts where "prompt" ends. Rendering the messages up to the turn gives another prefix;
/// the turn ends where that ends, without trailing white space. The range is "Hello<|im_end|>". If a
/// rendering is not a prefix (some templates drop reasoning from earlier turns), find_by_frame() replaces the
/// content of the turn by an unused character in the full conversation: the text before and after that
/// character is the frame of the turn.
class TurnFinder {
 public:
  TurnFinder(const ChatRenderer& renderer, const Json& messages, const Json& tools, std::string_view full,
             WorkBudget* budget)
      : renderer_(renderer), messages_(messages), tools_(tools), full_(full), budget_(budget) {}

  /// Returns the byte range of the turn with message index `turn`. Call with increasing indices.
  Span find(size_t turn) {
    while (before_.size() < turn) before_.push_back(messages_[before_.size()]);
    std::optional<size_t> first = start_by_prompt();
    before_.push_back(messages_[turn]);
    std::optional<size_t> last = before_.size() == messages_.size() ? full_.size() : end_by_prefix();
    if (!first || !last) find_by_frame(turn, first, last);
    if (first && last) last = without_blank_end(full_.substr(0, *last)).size();
    if (!first || !last || *last <= *first) refuse(turn);
    return {static_cast<int64_t>(*first), static_cast<int64_t>(*last)};
  }

 private:
  [[noreturn]] static void refuse(size_t turn) {
    throw RecordError("unclear turn",
                      fmt::format("cannot locate the assistant's turn {} in the rendered conversation; mark "
                                  "it by {{% generation %}} in the template",
                                  turn + 1));
  }

  std::optional<std::string> try_render(const Json& messages, bool prompts) const {
    try {
      return renderer_.render_template(messages, tools_, prompts, budget_).text;
    } catch (const UserError&) {
      return std::nullopt;
    }
  }

  /// Returns the offset in the full text at which the turn starts: where the generation prompt ends. If the
  /// prompt opens a <think> block that the full text continues differently or lacks, returns the start of the
  /// block.
  std::optional<size_t> start_by_prompt() {
    prompt_ = try_render(before_, true);
    if (!prompt_) return std::nullopt;
    const size_t shared = shared_start(*prompt_, full_);
    const bool is_whole = shared == prompt_->size();
    if (is_whole && !renderer_.options_.train_on_generation_prompt) return shared;
    const size_t think_offset = prompt_->rfind("<think>");
    if (think_offset <= shared && think_offset >= start_of_header(before_)) return think_offset;
    return is_whole ? std::optional(shared) : std::nullopt;
  }

  /// Returns the offset of the header of the assistant's turn: where renderings of the messages `before` with
  /// and without generation prompt start to differ.
  size_t start_of_header(const Json& before) const {
    const auto unprompted = try_render(before, false);
    if (!unprompted) return prompt_->size();
    return before_special_token(*prompt_, shared_start(*prompt_, *unprompted));
  }

  std::optional<size_t> end_by_prefix() const {
    const auto text = try_render(before_, false);
    if (!text || !full_.starts_with(*text)) return std::nullopt;
    return text->size();
  }

  std::optional<Frame> frame_of(Json messages, size_t turn, bool prompts) const {
    const auto mark = unused_character(messages_);
    if (!mark) return std::nullopt;
    messages[turn]["content"] = std::string(1, *mark);
    const auto text = try_render(messages, prompts);
    const size_t at = text ? text->find(*mark) : std::string::npos;
    if (at == std::string::npos) return std::nullopt;
    return Frame{text->substr(0, at), text->substr(at + 1)};
  }

  /// Sets `first` and `last`, where missing, from the text before and after the turn's content in the full
  /// conversation.
  void find_by_frame(size_t turn, std::optional<size_t>& first, std::optional<size_t>& last) const {
    const auto frame = frame_of(messages_, turn, false);
    if (!frame || !full_.ends_with(frame->after)) return;
    if (!first && full_.starts_with(frame->before))
      first = frame->before.size() - lead_bytes(frame->before, turn);
    if (!last) last = full_.size() - frame->after.size() + end_of_turn_bytes(frame->after, turn);
  }

  /// Returns the number of bytes that belong to the turn although they are before its content: text that the
  /// template prints between generation prompt and content.
  size_t lead_bytes(std::string_view before, size_t turn) const {
    const auto alone = frame_of(before_, turn, false);
    if (!prompt_ || !alone || !alone->before.starts_with(*prompt_)) return 0;
    const std::string_view lead = std::string_view(alone->before).substr(prompt_->size());
    return before.ends_with(lead) ? lead.size() : 0;
  }

  /// Returns the number of bytes after the turn's content that belong to the turn (end-of-turn token): the
  /// text between the content and the next generation prompt; if that cannot be rendered, the part of `after`
  /// that also follows the content when the turn is the last one.
  size_t end_of_turn_bytes(std::string_view after, size_t turn) const {
    Json before = before_;
    before.erase(turn);
    const std::string header = prompt_ ? prompt_->substr(start_of_header(before)) : "";
    if (const auto prompted = frame_of(before_, turn, true); prompted && prompted->after.ends_with(header)) {
      const size_t size = prompted->after.size() - header.size();
      if (size > 0 && after.starts_with(std::string_view(prompted->after).substr(0, size))) return size;
    }
    const auto alone = frame_of(before_, turn, false);
    const std::string_view mark = alone ? without_blank_end(alone->after) : std::string_view();
    return before_special_token(after, shared_start(after, mark));
  }

  /// Returns `offset`, or the start of the special token in which `offset` is.
  size_t before_special_token(std::string_view text, size_t offset) const {
    for (const std::string& token : renderer_.options_.special_tokens) {
      const size_t low = offset - std::min(offset, token.size() - 1);
      const size_t found = text.substr(low, token.size() + offset - low - 1).find(token);
      if (found != text.npos && low + found < offset && low + found + token.size() > offset)
        return low + found;
    }
    return offset;
  }

  const ChatRenderer& renderer_;
  const Json& messages_;
  const Json& tools_;
  std::string_view full_;
  WorkBudget* budget_;
  Json before_ = Json::array();
  std::optional<std::string> prompt_;  ///< generation prompt of the current turn
};

std::vector<std::string> special_tokens_of(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (tokenizer.is_special(token) && !tokenizer.token(token).empty())
      tokens.push_back(tokenizer.token(token));
  }
  return tokens;
}

ChatRenderer::ChatRenderer(Template chat_template, ChatOptions options)
    : template_(std::move(chat_template)), options_(std::move(options)) {}

Rendered ChatRenderer::render_template(const Json& messages, const Json& tools, bool prompts,
                                       WorkBudget* budget) const {
  Json variables = options_.variables;
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = prompts;
  variables["bos_token"] = options_.bos_token;
  variables["eos_token"] = options_.eos_token;
  return template_.render(variables, {.now = options_.now, .budget = budget});
}

std::string ChatRenderer::prompt(const Json& messages, const Json& tools) const {
  return render_template(messages, tools, true, nullptr).text;
}

namespace {

/// Returns the ranges of the messages to train on. `generated`: one range per assistant message.
std::vector<Span> trained_spans(const Json& messages, const std::vector<Span>& generated,
                                const std::vector<uint8_t>& trained) {
  std::vector<size_t> assistant_messages;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] == "assistant") assistant_messages.push_back(i);
  }
  const bool all = std::all_of(assistant_messages.begin(), assistant_messages.end(),
                               [&](size_t i) { return trained[i] != 0; });
  if (all) return generated;
  if (assistant_messages.size() != generated.size()) {
    throw RecordError(
        "unclear turn",
        fmt::format(
            "{} turns of the assistant need one {{% generation %}} block each, but the template writes {}",
            assistant_messages.size(), generated.size()));
  }
  std::vector<Span> spans;
  for (size_t i = 0; i < assistant_messages.size(); ++i) {
    if (trained[assistant_messages[i]] != 0) spans.push_back(generated[i]);
  }
  return spans;
}

/// True if the text of a turn ends with the message's content, without an end-of-turn token after it.
bool is_open(std::string_view turn_text, const Json& message) {
  const std::string content = message["content"].get<std::string>();
  return !trimmed(content).empty() && without_blank_end(turn_text).ends_with(trimmed(content));
}

/// True if the assistant's messages have reasoning and `text` contains none of it (compared by the first 64
/// bytes).
bool loses_reasoning(const Json& messages, std::string_view text) {
  constexpr size_t kStart = 64;
  bool any = false;
  for (const Json& message : messages) {
    const auto found = message.find("reasoning_content");
    if (message["role"] != "assistant" || found == message.end() || !found->is_string()) continue;
    const std::string_view reasoning = trimmed(found->get_ref<const std::string&>());
    if (reasoning.empty()) continue;
    if (text.find(reasoning.substr(0, kStart)) != text.npos) return false;
    any = true;
  }
  return any;
}

/// Throws a RecordError if locating the turns would take too long: TurnFinder renders all earlier messages
/// for each turn, which is quadratic in the length of a conversation.
void check_work(const std::string& text, const Json& messages, const std::vector<uint8_t>& trained) {
  constexpr size_t kMaxBytes = size_t{1} << 28, kMessageBytes = 256;
  const auto num_turns = static_cast<size_t>(std::ranges::count(trained, uint8_t{1}));
  if (num_turns * (text.size() + kMessageBytes * messages.size()) <= kMaxBytes) return;
  throw RecordError("too many turns",
                    fmt::format("{} turns to train on in {} bytes take too long to locate; split the "
                                "conversation, or mark the turns by {{% generation %}} in the template",
                                num_turns, text.size()));
}

}  // namespace

void ChatRenderer::check_tool_calls(const Json& messages, const Json& tools, WorkBudget* budget) const {
  if (std::none_of(messages.begin(), messages.end(), has_tool_calls)) return;
  Json renamed = messages;
  const std::string word = unused_word(messages.dump() + tools.dump());
  const auto words = rename_tool_calls(renamed, word);
  std::string text;
  try {
    text = render_template(renamed, tools, false, budget).text;
  } catch (const UserError&) {
    // The text stays empty, so that the loop below reports a missing tool call.
  }
  for (const auto& [each, message] : words) {
    if (text.find(each) != text.npos) continue;
    throw RecordError("tool call not printed",
                      fmt::format("the chat template {} does not print name and arguments of the tool calls "
                                  "in turn {}; use one that does",
                                  template_.name(), message + 1));
  }
}

MarkedText ChatRenderer::render(const Json& messages, const Json& tools, size_t first_trained,
                                WorkBudget* budget) const {
  Rendered whole;
  try {
    whole = render_template(messages, tools, false, budget);
  } catch (const RecordError&) {
    throw;
  } catch (const UserError& error) {
    throw RecordError("refused by the template", error.what());
  }
  check_tool_calls(messages, tools, budget);
  std::vector<uint8_t> trained;
  for (size_t i = 0; i < messages.size(); ++i)
    trained.push_back(i >= first_trained && is_trained(messages[i]) ? 1 : 0);
  MarkedText marked{.text = std::move(whole.text)};
  marked.loses_reasoning = loses_reasoning(messages, marked.text);
  if (template_.marks_generation()) {
    marked.trained = trained_spans(messages, whole.generated, trained);
    marked.by_template = true;
    return marked;
  }
  check_work(marked.text, messages, trained);
  TurnFinder finder(*this, messages, tools, marked.text, budget);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (trained[i] == 0) continue;
    const Span span = finder.find(i);
    const std::string_view turn_text =
        std::string_view(marked.text)
            .substr(static_cast<size_t>(span.first), static_cast<size_t>(span.last - span.first));
    marked.num_open_turns += is_open(turn_text, messages[i]) ? 1 : 0;
    marked.trained.push_back(span);
  }
  return marked;
}

}  // namespace hearth::text
