#include "convert/language.h"

#include <fmt/format.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::convert {
namespace {

/// Max bytes of a data file that the import reads in order to look at its records.
constexpr int64_t kMaxDataBytes = 1 << 28;

/// Calls visit(record) for the records of a local JSON or JSON Lines file until visit returns false.
template <typename Visit>
void for_each_record(const Importer& importer, const std::string& path, const Visit& visit) {
  if (!importer.exists(path) || !fs::is_regular_file(path)) return;
  if (fs::file_size(path) > uint64_t{kMaxDataBytes}) return;
  const std::string text = read_file(path, kMaxDataBytes);
  std::string_view rest = trimmed(without_bom(text));
  if (rest.starts_with('[')) {
    const auto all = parse_json<Value>(rest);
    if (!all || !all->is_array()) return;
    for (const Value& record : *all)
      if (!visit(record)) return;
    return;
  }
  while (!rest.empty()) {
    const auto record = parse_json<Value>(take_line(rest));
    if (record && !visit(*record)) return;
  }
}

/// Returns the last part of a name on the hub: "alpaca" for "tatsu-lab/alpaca".
std::string last_part(const std::string& name) { return name.substr(name.rfind('/') + 1); }

/// True if a text has the form of a name on the hub: ORG/NAME.
bool is_hub_repository(std::string_view name) {
  const size_t slash = name.find('/');
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return slash != name.npos && slash > 0 && slash + 1 < name.size() && name[0] != '.' &&
         name.substr(0, slash).find_first_not_of(kAllowed) == name.npos &&
         name.substr(slash + 1).find_first_not_of(kAllowed) == name.npos;
}

}  // namespace

Result set_data(Importer& importer, const std::string& path) {
  if (importer.exists(path) || fs::path(path).has_extension()) return importer.set_text("data.path", path);
  return importer.set_text("data.path", last_part(path) + ".jsonl",
                           fmt::format("write the dataset {} of the hub to this file, or set "
                                       "data.path=hf:datasets/{}/FILE",
                                       path, path));
}

Value first_record(const Importer& importer, const std::string& path) {
  Value first;
  for_each_record(importer, path, [&](const Value& record) {
    first = record;
    return false;
  });
  return first;
}

int64_t num_records(const Importer& importer, const std::string& path) {
  int64_t count = 0;
  for_each_record(importer, path, [&](const Value&) {
    ++count;
    return true;
  });
  return count;
}

bool has_nonempty(const Importer& importer, const std::string& path, const std::string& field) {
  bool found = false;
  for_each_record(importer, path, [&](const Value& record) {
    if (record.is_object() && record.contains(field)) found = !is_off(record[field]);
    return !found;
  });
  return found;
}

Result convert_model(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  if (importer.exists(name) || !is_hub_repository(name)) return importer.set_text("model.path", name);
  return importer.set_text("model.path", "hf:" + name, "downloaded from the hub when it is first used");
}

Result convert_scheduler(Importer& importer, const Entry& entry) {
  const std::string name = lowered(text_of(entry.value));
  if (name == "constant" || name == "constant_with_warmup") return importer.set("schedule.name", "constant");
  const double cycles = importer.config.number("lr_scheduler_kwargs.num_cycles",
                                               importer.config.number("lr_scheduler_num_cycles", 1));
  // transformers' cosine has half a cycle by default, cosine_with_restarts one, which is the same curve.
  const double default_cycles = name == "cosine" && cycles != 1 ? 0.5 : 1;
  if ((name == "cosine" || name == "cosine_with_restarts") && cycles == default_cycles)
    return importer.set("schedule.name", "cosine");
  if (name == "cosine_with_min_lr") {
    const double rate = importer.config.number("learning_rate", 5e-5);
    const double min = importer.config.number(
        "lr_scheduler_kwargs.min_lr", rate * importer.config.number("lr_scheduler_kwargs.min_lr_rate", 0));
    importer.set("schedule.min_lr", number_text(min));
    return importer.set("schedule.name", "cosine", fmt::format("schedule.min_lr={}", number_text(min)));
  }
  return importer.refuse(fmt::format("Hearth has no {} schedule", text_of(entry.value)), "schedule.name",
                         "cosine");
}

Result convert_warmup(Importer& importer, const Entry& entry) {
  const double value = number_of(entry.value, -1);
  if (value < 0) return importer.refuse("the value is not a number", "schedule.warmup_steps");
  if (lowered(importer.config.text("lr_scheduler_type", importer.config.text("lr_scheduler"))) == "constant")
    return no_effect("a constant schedule has no warmup");
  const bool is_ratio = entry.key.ends_with("ratio") || (value > 0 && value < 1);
  if (!is_ratio && value == 0 && importer.config.number("warmup_ratio", 0) > 0)
    return no_effect("warmup_ratio applies");
  if (is_ratio && importer.config.number("warmup_steps", 0) >= 1) return no_effect("warmup_steps applies");
  if (!is_ratio || value == 0) return importer.set("schedule.warmup_steps", number_text(std::round(value)));
  const auto updates = importer.updates();
  if (!updates)
    return importer.refuse(
        "the value is a fraction of all updates, whose number is unknown without the model and the data",
        "schedule.warmup_steps");
  return importer.set("schedule.warmup_steps", number_text(std::ceil(value * *updates)),
                      fmt::format("{} of {} updates", number_text(value), number_text(*updates)));
}

Result convert_epochs(Importer& importer, const Entry& entry) {
  const double epochs = number_of(entry.value, 0);
  if (importer.config.number("max_steps", 0) > 0 || importer.config.number("max_train_steps", 0) > 0)
    return no_effect("the number of updates is set");
  if (epochs == std::round(epochs)) return importer.set("train.epochs", number_text(epochs));
  return importer.refuse("train.epochs is an integer", "train.epochs",
                         number_text(std::max(1.0, std::round(epochs))));
}

Result convert_precision(Importer& importer, const Entry& entry) {
  const std::string key = entry.key, value = lowered(text_of(entry.value));
  if (value == "false") return equal("off");
  const bool is_half = key == "fp16" || key == "float16";
  if (is_half && importer.config.is_true("bf16"))
    return importer.refuse("bf16 and fp16 are both set; remove one of them");
  return importer.set("precision", is_half ? "fp16" : "bf16",
                      value == "auto" ? "auto chooses bf16 where the GPU supports it" : "");
}

Result convert_load_in_bits(Importer& importer, const Entry& entry) {
  if (is_off(entry.value)) return equal("off");
  const bool is_four = entry.key == "load_in_4bit";
  return importer.set("adapter.quantize", is_four ? "nf4" : "int8",
                      is_four ? "" : "Hearth rounds weights only, not activations");
}

Result convert_targets(Importer& importer, const Entry& entry) {
  const std::vector<std::string> names = texts_of(entry.value);
  if (names.size() == 1 && (names[0] == "all" || names[0] == "all-linear"))
    return importer.set("adapter.targets", "[all-linear]");
  for (const std::string& name : names)
    if (name.find_first_of("*\\()[]^$|+?") != name.npos)
      return importer.refuse("regular expressions are not supported; list the names of the layers",
                             "adapter.targets");
  return importer.set_list("adapter.targets", names);
}

Result convert_template(Importer& importer, const Entry& entry) {
  const std::string name = text_of(entry.value);
  if (name == "chatml") return importer.set("data.template", "chatml");
  if (name == "tokenizer_default") return equal("the template of the tokenizer");
  if (importer.exists(name) && fs::is_regular_file(name)) return importer.set_text("data.template", name);
  return importer.set_text("data.template", "",
                           fmt::format("the template of the tokenizer; run hearth validate and check that it "
                                       "renders chats as '{}' does",
                                       name));
}

Result convert_special_token(Importer& importer, const Entry& entry) {
  const std::string name = entry.key.substr(entry.key.rfind('.') + 1);
  if (name == "pad_token") return no_effect("padding is not trained");
  for (const char* key : {"base_model", "model_name_or_path"}) {
    const fs::path file = fs::path(importer.config.text(key)) / "tokenizer_config.json";
    if (!importer.config.find(key) || !importer.exists(file.string())) continue;
    const auto config = parse_json<Value>(read_file(file, 1 << 24));
    if (!config || !config->is_object() || !config->contains(name)) continue;
    const Value& token = (*config)[name];
    const std::string text =
        token.is_object() && token.contains("content") ? text_of(token["content"]) : text_of(token);
    if (text == text_of(entry.value)) return equal("the tokenizer has the same token");
  }
  return importer.refuse(
      fmt::format("Hearth uses the tokenizer's {}; set it in tokenizer_config.json", name));
}

}  // namespace hearth::convert
