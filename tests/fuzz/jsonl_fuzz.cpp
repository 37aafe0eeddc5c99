#include "base/error.h"
#include "temporary_file.h"
#include "text/chat.h"
#include "text/jsonl.h"

/// Reads records in whatever format they have and renders them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth::text;  // NOLINT
  static const ChatRenderer kRenderer(Template(*built_in_template("chatml"), "chatml"), {});
  const hearth::TemporaryFile bytes(data, size);
  try {
    Faults faults;
    const DataFile file(bytes.path());
    const auto visit = [](const Entry& entry) {
      const Record record = read_record(parse_record(entry.text), {});
      if (!record.messages.empty()) kRenderer.render(record.messages, record.tools);
    };
    file.for_each(visit, faults);
  } catch (const hearth::UserError&) {
  }
  return 0;
}
