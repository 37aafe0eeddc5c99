#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/process.h"
#include "base/run_files.h"
#include "base/threads.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/model_folder.h"
#include "run/from_recipe.h"
#include "run/open_text_session.h"
#include "serve/image_endpoints.h"
#include "serve/page_files.h"
#include "serve/text_endpoints.h"
#include "tasks/language/text_source.h"
#include "tasks/task_def.h"

namespace hearth::cli {
namespace {

/// Max time for running answers to end after SIGINT or SIGTERM.
constexpr auto kDrainTime = std::chrono::seconds(30);
/// Max number of requests in the queue of a language model.
constexpr size_t kMaxWaiting = 256;
constexpr int64_t kDefaultContext = 2048;

struct ServeArguments {
  std::string model, base;
  std::vector<std::string> adapters;
  net::HttpServerOptions server = {.port = 8080};
  infer::BatchOptions batch;
  bool json = false;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Returns the name of a model in requests: the last part of its path.
std::string name_of(const fs::path& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

/// Parses --adapter [NAME=]PATH.
std::vector<infer::NamedAdapter> adapters_of(const std::vector<std::string>& texts) {
  std::vector<infer::NamedAdapter> adapters;
  for (const std::string& text : texts) {
    const size_t end = fs::exists(text) ? std::string::npos : text.find('=');
    const fs::path path = end == std::string::npos ? text : text.substr(end + 1);
    const std::string name = end == std::string::npos ? name_of(path) : text.substr(0, end);
    for (const infer::NamedAdapter& other : adapters)
      if (other.name == name)
        user_error("two adapters are named '{0}'; name this one with --adapter NAME={1}", name,
                   path.string());
    adapters.push_back({.name = name, .path = hub::find_adapted_model(path).adapter});
  }
  return adapters;
}

/// If the user gave no --api-key, sets the key to HEARTH_API_KEY or to a random one. Throws a UserError if
/// the server listens on an address for other machines and the user chose no key.
void set_key(net::HttpServerOptions& options) {
  const char* key = std::getenv("HEARTH_API_KEY");
  if (options.token.empty() && key != nullptr) options.token = key;
  if (!options.token.empty()) return;
  if (!is_loopback(options.host))
    user_error(
        "--host {} accepts connections from other machines, but no key is set; set --api-key or "
        "HEARTH_API_KEY",
        options.host);
  options.token = net::random_token();
}

/// Line about clients, printed at the start: `label`, then the URL of the server followed by `path`.
struct ClientHint {
  const char *label, *path;
};
constexpr ClientHint kOpenAi = {"OpenAI clients: base URL", "v1"}, kPredict = {"POST images to", "predict"};

void run_server(net::HttpServer& server, const ServeArguments& arguments, const std::string& name,
                const ClientHint& hint) {
  server.start();
  net::StopSignals signals;
  const std::string& token = arguments.server.token;
  if (arguments.json) {
    print_json({{"model", name}, {"url", server.url()}, {"port", server.port()}, {"token", token}});
  } else {
    say("serving {} at {}?token={}\n", name, server.url(), token);
    say("{} {}{}, API key {}\n", hint.label, server.url(), hint.path, token);
    std::fflush(stdout);
  }
  signals.wait();
  say(stderr, "stopping: waiting for running answers, at most {} s\n", kDrainTime.count());
  server.stop(kDrainTime);
}

void serve_text(const CLI::App& verb, const ServeArguments& arguments,
                const std::optional<recipe::Recipe>& trained) {
  const hub::ModelFolder model = hub::find_model(arguments.model, arguments.base);
  infer::BatchOptions batch = arguments.batch;
  if (batch.compute.num_threads == 0) batch.compute.num_threads = num_available_cpus();
  run::set_compute(overrides_of(verb), "hearth serve", batch.compute, batch.precision);
  batch.adapters = adapters_of(arguments.adapters);
  if (!batch.compute.gpu) check_fits(infer::plan_batch(model, batch), batch, available_memory_bytes());
  net::HttpServer server(arguments.server);
  serve::TextService service(model, tasks::chat_options(trained ? trained->data : recipe::Data()), batch,
                             kMaxWaiting);
  serve::ModelNames names{.base = name_of(arguments.model)};
  for (const infer::NamedAdapter& adapter : batch.adapters) names.adapters.push_back(adapter.name);
  serve::add_text_endpoints(server, service, names);
  serve::add_pages(server, "/chat.html");
  run_server(server, arguments, names.base, kOpenAi);
}

/// Throws a UserError if a flag for language models was given.
void refuse_text_flags(const CLI::App& verb, std::initializer_list<const char*> flags) {
  for (const char* flag : flags)
    if (verb.count(flag) > 0)
      user_error("{} is for language models, but this is an image model; remove it", flag);
}

void serve_predictions(const CLI::App& verb, const ServeArguments& arguments) {
  refuse_text_flags(verb, {"--base", "--adapter", "--slots", "--context", "--threads"});
  net::HttpServer server(arguments.server);
  run::PredictSession session(open_run(arguments.model, overrides_of(verb)), arguments.model, {});
  serve::TaskThread thread;
  const std::string name = name_of(arguments.model);
  serve::add_common_endpoints(server, {name});
  serve::add_predict_endpoint(server, session, thread);
  serve::add_pages(server, "/predict.html");
  run_server(server, arguments, name, kPredict);
}

void serve_generation(const CLI::App& verb, const ServeArguments& arguments) {
  refuse_text_flags(verb, {"--base", "--slots", "--context"});
  if (arguments.adapters.size() > 1)
    user_error("an image model uses one --adapter, but there are {}; keep one", arguments.adapters.size());
  net::HttpServer server(arguments.server);
  run::ImageSession session(arguments.model,
                            {.overrides = overrides_of(verb),
                             .adapter = arguments.adapters.empty() ? "" : arguments.adapters.front(),
                             .threads = arguments.batch.compute.num_threads});
  serve::TaskThread thread;
  const std::string name = name_of(arguments.model);
  serve::add_common_endpoints(server, {name});
  serve::add_generation_endpoint(server, session, thread, name);
  serve::add_pages(server, "/images.html");
  run_server(server, arguments, name, kOpenAi);
}

void run_serve(const CLI::App& verb, ServeArguments arguments) {
  set_key(arguments.server);
  const auto trained = run::recipe_of_run(arguments.model);
  if (run::generates_images(arguments.model, trained)) return serve_generation(verb, arguments);
  const bool predicts = trained && tasks::task_of(*trained).model_format == tasks::ModelFormat::built_in;
  predicts ? serve_predictions(verb, arguments) : serve_text(verb, arguments, trained);
}

}  // namespace

void add_serve(CLI::App& app) {
  const auto arguments = std::make_shared<ServeArguments>();
  CLI::App* verb = app.add_subcommand(
      "serve",
      "Serve a model over HTTP, with a web page, until Ctrl-C or SIGTERM: language models and image "
      "generators with OpenAI's API; classifiers, segmenters and detectors with POST /predict");
  verb->add_option("model", arguments->model,
                   "Model folder, run folder (best weights, or last ones), or adapter")
      ->required();
  verb->add_option("--base", arguments->base,
                   "Base model of an adapter (default: the one in adapter_config.json)");
  verb->add_option(
          "--adapter", arguments->adapters,
          "LoRA adapter [NAME=]RUN, which requests select with the field model; may be given several times")
      ->allow_extra_args(false);
  verb->add_option("--host", arguments->server.host,
                   "Address to listen on; addresses other than this machine's loopback need --api-key")
      ->capture_default_str();
  verb->add_option("--port", arguments->server.port, "Port to listen on; 0: any free port")
      ->check(CLI::Range(0, 65535).description("0 to 65535"))
      ->capture_default_str();
  verb->add_option(
      "--api-key", arguments->server.token,
      "Key that clients must send (default: the environment variable HEARTH_API_KEY, or a random key)");
  verb->add_option(
      "--allowed-host", arguments->server.allowed_hosts,
      "Name of this machine that clients may use in URLs, in addition to IP addresses and localhost");
  verb->add_option("--slots", arguments->batch.num_slots,
                   "Max number of requests that are answered at the same time")
      ->check(CLI::Range(int64_t{1}, int64_t{256}).description("1 to 256"))
      ->capture_default_str();
  arguments->batch.tokens_per_slot = kDefaultContext;
  verb->add_option("--context", arguments->batch.tokens_per_slot,
                   "Size of the KV cache of a slot: max tokens of prompt and answer together")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24).description("2 to 16777216"))
      ->capture_default_str();
  arguments->batch.compute.num_threads = 0;
  verb->add_option("--threads", arguments->batch.compute.num_threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(0, 1024).description("0 to 1024"))
      ->capture_default_str();
  add_json(*verb, arguments->json);
  allow_overrides(*verb);
  set_example(*verb, "hearth serve runs/llama-lora --port 8080");
  verb->callback([=] { run_serve(*verb, *arguments); });
}

}  // namespace hearth::cli
