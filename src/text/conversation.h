#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/faults.h"
#include "text/jinja.h"

namespace hearth::text {

/// How a data file writes its records.
enum class Format {
  detect,             ///< by the fields of each record
  text,               ///< {text}
  prompt_completion,  ///< {prompt, completion}, also question/answer and the like
  alpaca,             ///< {instruction, input, output}, also system and history
  sharegpt,           ///< {conversations: [{from, value}]}, also system and tools
  openai,             ///< {messages: [{role, content}]}, also tools
  preference          ///< {prompt, chosen, rejected}: strings, messages or whole conversations
};

/// The name that recipes use, "sharegpt"; UserError with a suggestion for one that is unknown.
Format parse_format(const std::string& name);
const char* format_name(Format format);

struct FormatOptions {
  Format format = Format::detect;
  /// A field's name here and its name in the file (text, prompt, completion, instruction, input, output,
  /// system, history, messages, role, content, tools, chosen, rejected). It takes the place of the known
  /// aliases.
  std::vector<std::pair<std::string, std::string>> fields = {};
};

/// A record in one form, whatever it was written in.
struct Record {
  Format format = Format::text;
  std::string text = {};  ///< Format::text
  /// Objects {role, content, ...} as templates expect them, roles system, user, assistant and tool. For
  /// preferences what both answers share.
  Json messages = Json::array();
  Json chosen = Json::array();  ///< preference: the messages that follow
  Json rejected = Json::array();
  Json tools = nullptr;
};

/// Checks options: UserError for an unknown field name.
void check_format_options(const FormatOptions& options);

/// Reads a record. RecordError for fields that are missing, an unknown role, a turn of the assistant that is
/// empty or lacking, images and other parts than text, a function call that is none, an answer that is
/// labeled as bad, or fields of no known format.
Record read_record(const Json& object, const FormatOptions& options);

/// Whether a message has tool calls: a list that is not empty.
bool has_tool_calls(const Json& message);

/// Whether a message is the assistant's and not excluded by `weight: 0` or `loss_weight: 0`.
bool is_trained(const Json& message);

}  // namespace hearth::text
