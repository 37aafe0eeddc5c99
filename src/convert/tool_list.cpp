#include <fmt/format.h>

#include "convert/import.h"
#include "convert/language.h"
#include "convert/rule.h"

namespace hearth::convert {

/// Functions that return the tools. To add a tool, write such a function in NAME.cpp and add its name here
/// and in tools().
Tool axolotl(), llama_factory(), torchtune(), kohya(), ai_toolkit(), ultralytics(), trl();

namespace {

/// Describes the conversion of a key for a table in docs/import-keys.md.
std::string fate_of(const Rule& rule) {
  const std::string ours = rule.ours.empty() ? "" : fmt::format("`{}`", rule.ours);
  std::string text;
  switch (rule.kind) {
    case RuleKind::take:
    case RuleKind::convert:
      text = ours.empty() ? "checked" : ours;
      break;
    case RuleKind::without_effect:
      text = "no effect";
      break;
    case RuleKind::part:
      return std::string(rule.note);
    case RuleKind::accept:
      text = rule.values.empty() ? "refused unless off" : "refused";
      break;
  }
  if (!rule.values.empty()) {
    std::string values(rule.values);
    for (char& c : values)
      if (c == '|') c = ' ';
    text +=
        rule.kind == RuleKind::accept ? fmt::format(" unless `{}`", values) : fmt::format(" (`{}`)", values);
  }
  if (!rule.note.empty()) text += fmt::format("; {}", rule.note);
  if (!rule.fallback.empty()) text += fmt::format("; default: `{}`", rule.fallback);
  return text;
}

/// Returns a Markdown row per rule.
std::string describe_rules(std::span<const Rule> rules) {
  std::string text;
  for (const Rule& rule : rules) {
    std::string keys;
    for (const char c : rule.keys) keys += c == ' ' ? "`, `" : std::string(1, c);
    text += fmt::format("| `{}` | {} |\n", keys, fate_of(rule));
  }
  return text;
}

}  // namespace

std::span<const Tool> tools() {
  static const Tool all[] = {axolotl(),    llama_factory(), torchtune(), kohya(),
                             ai_toolkit(), ultralytics(),   trl()};
  return all;
}

std::vector<std::string> tool_titles() {
  std::vector<std::string> titles;
  for (const Tool& tool : tools()) titles.push_back(fmt::format("{} ({})", tool.name, tool.title));
  return titles;
}

std::string describe_tools_in_markdown() {
  std::string text;
  for (const Tool& tool : tools()) {
    text +=
        fmt::format("\n## {}: `--tool {}`\n\n| keys | in Hearth |\n| --- | --- |\n", tool.title, tool.name);
    for (const auto table : tool.tables) {
      if (table.data() == trainer_rules().data()) {
        text +=
            "| arguments of Hugging Face's Trainer | see [below](#arguments-of-hugging-faces-trainer) |\n";
        continue;
      }
      text += describe_rules(table);
    }
  }
  return text + "\n## Arguments of Hugging Face's Trainer\n\n| keys | in Hearth |\n| --- | --- |\n" +
         describe_rules(trainer_rules());
}

}  // namespace hearth::convert
