#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

// A stream: work that is done in order, on a thread, some time later.
class Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> work;
    bool busy = false, ends = false;
    std::thread thread;

    void run() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return ends || !work.empty(); });
            if (work.empty()) return;
            auto next = std::move(work.front());
            work.pop_front();
            busy = true;
            lock.unlock();
            next();
            next = nullptr;
            lock.lock();
            busy = false;
            changed.notify_all();
        }
    }

public:
    Stream() : thread([this] { run(); }) {}
    ~Stream() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            ends = true;
        }
        changed.notify_all();
        thread.join();
    }
    void push(std::function<void()> next) {
        std::lock_guard<std::mutex> lock(mutex);
        work.push_back(std::move(next));
        changed.notify_all();
    }
    void drain() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return work.empty() && !busy; });
    }
};
