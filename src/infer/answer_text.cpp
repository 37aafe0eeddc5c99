#include "infer/answer_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace hearth::infer {
namespace {

/// Number of tokens at the end whose text may change when a token is added. The same number of tokens before
/// them is decoded with them, as context.
constexpr size_t kContext = 16;

}  // namespace

AnswerText::AnswerText(const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  std::erase(stops_, "");
  if (tokenizer_ == nullptr) return;
  ids_.assign(prompt.end() - static_cast<int64_t>(std::min(prompt.size(), 2 * kContext)), prompt.end());
  context_bytes_ = tokenizer_->decode(ids_).size();
}

std::string_view AnswerText::add(int32_t id) {
  if (tokenizer_ == nullptr) return {};
  ids_.push_back(id);
  const std::string decoded = tokenizer_->decode(ids_);
  text_.resize(num_settled_);
  text_.append(decoded, std::min(context_bytes_, decoded.size()));
  if (ids_.size() >= 4 * kContext) {
    ids_.erase(ids_.begin(), ids_.end() - 2 * kContext);
    const size_t num_bytes = tokenizer_->decode(ids_).size();
    context_bytes_ = tokenizer_->decode(std::span(ids_).first(kContext)).size();
    num_settled_ = text_.size() - std::min(text_.size(), num_bytes - std::min(num_bytes, context_bytes_));
  }
  size_t end = std::string_view::npos;
  for (const std::string& stop : stops_) end = std::min(end, text_.find(stop, num_returned_));
  is_stopped_ = end != std::string_view::npos;
  return advance_to(is_stopped_ ? end : safe_end());
}

std::string_view AnswerText::finish() { return advance_to(is_stopped_ ? num_returned_ : text_.size()); }

std::string_view AnswerText::advance_to(size_t end) {
  const size_t begin = num_returned_;
  num_returned_ = std::max(begin, end);
  return std::string_view(text_).substr(std::min(begin, text_.size()), num_returned_ - begin);
}

/// Returns the length of the prefix that can be returned now: it ends before an incomplete UTF-8 character
/// and before a possible start of a stop text.
size_t AnswerText::safe_end() const {
  const std::string_view text = text_;
  size_t end = complete_prefix(text);
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, text.size() - std::min(text.size(), num_returned_));
         length > 0; --length) {
      if (!text.ends_with(std::string_view(stop).substr(0, length))) continue;
      end = std::min(end, text.size() - length);
      break;
    }
  }
  return end;
}

}  // namespace hearth::infer
