#include "data/boxes/label_xml.h"

#include <expat.h>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"

namespace hearth::data {
namespace {

constexpr size_t kMaxDepth = 32;
/// Max bytes of an element's text, enough for any name or number.
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxBytes = size_t{1} << 30;

}  // namespace

/// Callbacks for expat. Exceptions must not pass through expat, which is C code: an error stops the parser,
/// and parse() throws it after expat has returned.
struct LabelXml::Handlers {
  static LabelXml& self(void* data) { return *static_cast<LabelXml*>(data); }
  static void on_start(void* data, const char* element, const char** attributes) {
    self(data).open(element, attributes);
  }
  static void on_end(void* data, const char*) { self(data).close(); }
  static void on_text(void* data, const char* text, int length) {
    std::string& to = self(data).text_;
    if (to.size() < kMaxText) to.append(text, static_cast<size_t>(length));
  }
  static void on_entity(void* data, const char*, int, const char*, int, const char*, const char*, const char*,
                        const char*) {
    self(data).stop(self(data).line(),
                    "the XML declares an entity, which is not supported; write its text instead");
  }
};

LabelXml::LabelXml(std::string_view name, std::string_view root, std::string_view what)
    : name_(name), root_(root), what_(what), expat_(XML_ParserCreate(nullptr), XML_ParserFree) {
  HEARTH_CHECK(expat_ != nullptr);
  XML_SetUserData(expat_.get(), this);
  XML_SetElementHandler(expat_.get(), Handlers::on_start, Handlers::on_end);
  XML_SetCharacterDataHandler(expat_.get(), Handlers::on_text);
  XML_SetEntityDeclHandler(expat_.get(), Handlers::on_entity);
}

LabelXml::~LabelXml() = default;

void LabelXml::parse(std::string_view text) {
  if (text.size() > kMaxBytes) user_error("{}: the XML has more than 1 GiB; split it", name_);
  const bool good = XML_Parse(expat_.get(), text.data(), static_cast<int>(text.size()), XML_TRUE) != 0;
  if (!fault_.empty()) throw UserError(fault_);
  if (!good)
    user_error("{}:{}: the XML is damaged ({}); export it again", name_, line(),
               XML_ErrorString(XML_GetErrorCode(expat_.get())));
}

int64_t LabelXml::line() const {
// expat 2.9.0 added XML_GetCurrentLineNumber64 and deprecated XML_GetCurrentLineNumber.
#if XML_MAJOR_VERSION * 100 + XML_MINOR_VERSION >= 209
  return static_cast<int64_t>(XML_GetCurrentLineNumber64(expat_.get()));
#else
  return static_cast<int64_t>(XML_GetCurrentLineNumber(expat_.get()));
#endif
}

std::string LabelXml::where() const { return fmt::format("{}:{}", name_, line()); }

void LabelXml::refuse_at(int64_t line, std::string_view what) {
  if (kept_fault_ == nullptr) return stop(line, what);
  if (kept_fault_->empty()) *kept_fault_ = fmt::format("{}:{}: {}", name_, line, what);
}

void LabelXml::stop(int64_t line, std::string_view what) {
  if (!fault_.empty()) return;
  fault_ = fmt::format("{}:{}: {}", name_, line, what);
  XML_StopParser(expat_.get(), XML_FALSE);
}

double LabelXml::read_number(std::string_view text) {
  const auto value = parse_number(text);
  if (!value) refuse(fmt::format("expected a number, got '{}'", shortened(trimmed(text), 60)));
  return value.value_or(0);
}

int64_t LabelXml::read_side(std::string_view text) {
  constexpr double kMaxSide = 1 << 20;
  const double side = read_number(text);
  if (side >= 0 && side <= kMaxSide) return static_cast<int64_t>(side);
  refuse(fmt::format("expected the side of an image in pixels, got {:g}", side));
  return 0;
}

void LabelXml::open(std::string_view element, const char** attributes) {
  text_.clear();
  if (lengths_.size() == kMaxDepth)
    return stop(line(), fmt::format("elements nested more than {} deep are not supported", kMaxDepth));
  if (lengths_.empty() && element != root_)
    return stop(line(), fmt::format("expected {} in <{}>, got <{}>", what_, root_, shortened(element, 60)));
  lengths_.push_back(path_.size());
  path_ += '/';
  path_ += element.substr(0, kMaxText);
  start(element, attributes);
}

void LabelXml::close() {
  if (!fault_.empty()) return;
  end(trimmed(text_));
  text_.clear();
  path_.resize(lengths_.back());
  lengths_.pop_back();
}

std::optional<std::string_view> attribute(const char** attributes, std::string_view name) {
  for (; *attributes != nullptr; attributes += 2)
    if (name == attributes[0]) return attributes[1];
  return std::nullopt;
}

}  // namespace hearth::data
