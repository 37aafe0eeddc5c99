// Renders templates for jinja.py: JSON lines {template, variables, now} in, {text, generated} or {error} out.
#include <iostream>

#include "base/error.h"
#include "text/jinja.h"

namespace {

using hearth::text::Json;

Json render(const Json& request) {
  try {
    const hearth::text::Template parsed(request["template"].get<std::string>(), "template");
    hearth::text::RenderOptions options;
    if (request.contains("now")) options.now = request["now"].get<int64_t>();
    const hearth::text::Rendered rendered = parsed.render(request["variables"], options);
    Json spans = Json::array();
    for (const auto& span : rendered.generated) {
      const auto first = static_cast<size_t>(span.first);
      spans.push_back(rendered.text.substr(first, static_cast<size_t>(span.last) - first));
    }
    return {{"text", rendered.text}, {"generated", spans}};
  } catch (const hearth::UserError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << render(Json::parse(line)).dump() << "\n";
}
